// What the messages of WriteTensor and AccumulateGram mean to the store.
#ifndef SPARSEFW_SERVER_RPC_CALLS_CHUNK_SINK_H_
#define SPARSEFW_SERVER_RPC_CALLS_CHUNK_SINK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// Used by one thread at a time; every method may touch the disk.
//
// An upload that was made by this very stream (its first message carried a
// spec) has a name that no client knows: when the stream ends before it is
// finished, it is dropped.
class UploadTarget {
 public:
  explicit UploadTarget(RpcContext& context) : context_(context) {}
  ~UploadTarget() = default;

  // The upload that the stream writes to. `named` and `spec` are those of the
  // message at hand.
  // Errors: InvalidArgument  the first message names neither, or a later one
  //                          names another (TARGET_INVALID)
  template <typename Spec>
  absl::Status Resolve(bool has_name, std::string_view named, const Spec* spec);
  const std::string& name() const { return name_; }
  bool chosen() const { return !name_.empty(); }
  bool own() const { return own_; }
  void MarkFinished() { finished_ = true; }
  void Abandon();

 private:
  absl::StatusOr<std::string> Create(const v1::TensorSpec& spec);
  absl::StatusOr<std::string> Create(const v1::GramSpec& spec);

  RpcContext& context_;
  std::string name_;
  bool own_ = false;
  bool finished_ = false;
};

class WriteTensorSink {
 public:
  using Request = v1::WriteTensorRequest;
  using Response = v1::WriteTensorResponse;
  static constexpr std::string_view kMethod = "TensorService/WriteTensor";

  explicit WriteTensorSink(RpcContext& context) : context_(context), target_(context) {}
  static const std::string& DataOf(const Request& request) { return request.chunk().data(); }
  // A response when the upload is finished.
  absl::StatusOr<std::optional<Response>> Take(const Request& request);
  // The client sent no `finish`: what has been committed is kept for later.
  absl::StatusOr<Response> EndOfStream();
  void Abandon() { target_.Abandon(); }

 private:
  absl::StatusOr<std::optional<Response>> Finish(const Request& request);

  RpcContext& context_;
  UploadTarget target_;
  int64_t committed_ = 0;
};

class AccumulateGramSink {
 public:
  using Request = v1::AccumulateGramRequest;
  using Response = v1::AccumulateGramResponse;
  static constexpr std::string_view kMethod = "TensorService/AccumulateGram";

  explicit AccumulateGramSink(RpcContext& context) : context_(context), target_(context) {}
  static const std::string& DataOf(const Request& request) { return request.data(); }
  absl::StatusOr<std::optional<Response>> Take(const Request& request);
  absl::StatusOr<Response> EndOfStream();
  void Abandon() { target_.Abandon(); }

 private:
  absl::StatusOr<std::optional<Response>> Finish();

  RpcContext& context_;
  UploadTarget target_;
  int64_t committed_ = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_CHUNK_SINK_H_
