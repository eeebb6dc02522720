// Sequences of calls and messages about uploads, of WriteTensor or AccumulateGram.
#ifndef SPARSEFW_TESTS_FUZZ_UPLOAD_SEQUENCE_H_
#define SPARSEFW_TESTS_FUZZ_UPLOAD_SEQUENCE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/tensors/upload_stream.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/temporary_store.h"

namespace sparsefw::fuzz {

// Stream: WriteTensorStream or AccumulateGramStream. Messages: a class with
//   using Request
//   static std::string Create(TensorStore&, Input&)        name of a new upload, or ""
//   static void SetSpec(Input&, Request*)                   of a one-call upload
//   static void SetChunk(Input&, int64_t next, Request*)    `next`: the end of what is there
//   static constexpr bool kMayGoBack                        a wrong total sets back to 0
//
// An input is a list of steps of one byte and what each needs. Required: what a client
// was told is never taken back, not by a restart either, and in the end every byte of
// the budget is free.
template <typename Stream, typename Messages>
class UploadSequence {
 public:
  UploadSequence(const uint8_t* data, size_t size) : input_(data, size) {
    context_.tensors = store_.get();
    NewStream();
  }

  void Run() {
    constexpr int kMostSteps = 64;
    for (int i = 0; i < kMostSteps && !input_.empty(); ++i) Step(input_.Byte() % 16);
    stream_->Abandon();
    store_.RequireEmptyInTheEnd();
  }

 private:
  using Request = typename Messages::Request;

  static int64_t CommittedOf(const server::UploadInfo& upload) {
    return Stream::kSums ? upload.committed_tokens : upload.committed_size;
  }

  void Step(int step) {
    switch (step) {
      case 0:
        return Create();
      case 1:
        return EndStream();
      case 2:
        stream_->Abandon();
        return NewStream();
      case 3:
        return Look(Name());
      case 4:
        return Delete();
      case 5:
        return Restart();
      case 6:
        return store_.Pass(absl::Minutes(input_.Byte() % 16));
      default:
        return Send();
    }
  }

  std::string Name() const {
    return names_.empty() ? "uploads/none" : names_[current_ % names_.size()];
  }

  void NewStream() {
    stream_.emplace(context_);
    stream_->SetTenant("default");
    first_ = true;
  }

  void Create() {
    std::string name = Messages::Create(*store_, input_);
    if (name.empty()) return;
    current_ = names_.size();
    names_.push_back(std::move(name));
  }

  void EndStream() {
    const auto response = stream_->EndOfStream();
    if (response.ok()) Look(Name());
    stream_->Abandon();
    NewStream();
  }

  // A client is told how far the upload has come.
  void Look(const std::string& name) {
    const auto upload = (*store_).GetUpload(name);
    if (!upload.ok()) return;
    const int64_t committed = CommittedOf(*upload);
    Require(committed >= told_[name] || went_back_[name], "what was told is not taken back");
    told_[name] = committed;
    went_back_[name] = false;
  }

  void Delete() {
    (*store_).DeleteUpload(Name()).IgnoreError();
    told_.erase(Name());
    current_ = input_.Byte();
  }

  void Restart() {
    stream_->Abandon();
    stream_.reset();
    store_.Restart();
    context_.tensors = store_.get();
    for (const auto& name : names_) Look(name);
    NewStream();
  }

  void Send() {
    const unsigned flags = input_.Byte();
    Request request;
    if ((flags & 1U) != 0 || first_) {
      if ((flags & 2U) != 0) {
        Messages::SetSpec(input_, &request);
      } else {
        request.set_upload(Name());
      }
    }
    if ((flags & 4U) == 0) {
      const auto upload = (*store_).GetUpload(Name());
      Messages::SetChunk(input_, upload.ok() ? CommittedOf(*upload) : 0, &request);
    }
    if ((flags & 8U) != 0) {
      request.set_finish(true);
      if constexpr (Messages::kMayGoBack) {
        if ((flags & 16U) != 0) request.set_total_crc32c(input_.Short());
      }
    }
    first_ = false;
    const auto response = stream_->Take(request);
    if (response.ok() && !response->has_value()) return;
    // The call ends with a response or an error.
    if (absl::IsDataLoss(response.status())) went_back_[Name()] = true;
    stream_->Abandon();
    NewStream();
  }

  TemporaryFolder folder_;
  TemporaryStore store_{folder_};
  server::RpcContext context_;
  Input input_;
  std::optional<Stream> stream_;
  bool first_ = true;
  std::vector<std::string> names_;
  size_t current_ = 0;
  std::map<std::string, int64_t> told_;
  std::map<std::string, bool> went_back_;  // and may have once more
};

}  // namespace sparsefw::fuzz

#endif  // SPARSEFW_TESTS_FUZZ_UPLOAD_SEQUENCE_H_
