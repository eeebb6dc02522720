#include <algorithm>
#include <span>
#include <utility>

#include "sparsefw/crc32c.h"
#include "tests/client/fake_server.h"

namespace sparsefw::client::testing {
namespace {

grpc::Status NextOf(std::deque<grpc::Status>& faults) {
  if (faults.empty()) return grpc::Status::OK;
  const grpc::Status status = faults.front();
  faults.pop_front();
  return status;
}

uint32_t CrcOf(const std::string& bytes) { return Crc32c(std::as_bytes(std::span(bytes))); }

grpc::Status NoUpload(const std::string& name) {
  return Error(grpc::NOT_FOUND, "no upload " + name, "UPLOAD_NOT_FOUND");
}

}  // namespace

void FakeTensorService::Forget() {
  MutexLock lock(mutex_);
  requests_.clear();
  uploads_.clear();
  tensors_.clear();
}

std::string FakeTensorService::NewName(const std::string& folder) {
  return folder + "/" + std::to_string(next_id_++);
}

v1::Tensor FakeTensorService::Store(const v1::TensorSpec& spec, const std::string& bytes) {
  v1::Tensor tensor;
  tensor.set_name(NewName("tensors"));
  *tensor.mutable_spec() = spec;
  tensor.set_byte_size(static_cast<int64_t>(bytes.size()));
  tensor.set_crc32c(CrcOf(bytes));
  tensors_[tensor.name()] = Stored{tensor, bytes};
  return tensor;
}

std::string FakeTensorService::Put(const v1::TensorSpec& spec, const std::string& bytes) {
  MutexLock lock(mutex_);
  return Store(spec, bytes).name();
}

std::string FakeTensorService::Bytes(const std::string& tensor) {
  MutexLock lock(mutex_);
  return tensors_[tensor].bytes;
}

size_t FakeTensorService::left() {
  MutexLock lock(mutex_);
  return uploads_.size() + tensors_.size();
}

grpc::Status FakeTensorService::CreateUpload(grpc::ServerContext* context,
                                             const v1::CreateUploadRequest* request,
                                             v1::CreateUploadResponse* response) {
  const grpc::Status made = MakeUpload(request, response);
  if (const auto told = std::exchange(on_create, nullptr)) told(context);
  return made;
}

grpc::Status FakeTensorService::MakeUpload(const v1::CreateUploadRequest* request,
                                           v1::CreateUploadResponse* response) {
  MutexLock lock(mutex_);
  create_request_ids.push_back(request->request_id());
  if (const grpc::Status fault = NextOf(create_faults); !fault.ok()) return fault;
  std::string& known = requests_[request->request_id()];
  if (const auto done = tensors_.find(known); done != tensors_.end()) {
    *response->mutable_tensor() = done->second.tensor;
    return grpc::Status::OK;
  }
  if (known.empty()) {
    known = NewName("uploads");
    uploads_[known].request = *request;
  }
  const int64_t committed = static_cast<int64_t>(uploads_[known].bytes.size());
  response->mutable_upload()->set_name(known);
  response->mutable_upload()->set_committed_size(request->has_tensor() ? committed : 0);
  return grpc::Status::OK;
}

std::optional<StreamFault> FakeTensorService::NextStream() {
  ++streams;
  if (stream_faults.empty()) return std::nullopt;
  const StreamFault fault = stream_faults.front();
  stream_faults.pop_front();
  return fault;
}

grpc::Status FakeTensorService::Commit(const std::string& upload, int64_t offset, int64_t unit,
                                       const std::string& key, uint32_t crc32c,
                                       const std::string& data,
                                       const std::optional<StreamFault>& fault) {
  const auto found = uploads_.find(upload);
  if (found == uploads_.end()) return NoUpload(upload);
  std::string& bytes = found->second.bytes;
  const int64_t committed = static_cast<int64_t>(bytes.size()) / unit;
  chunk_sizes.push_back(static_cast<int64_t>(data.size()));
  const std::map<std::string, std::string> where{{key, std::to_string(committed)}};
  if (CrcOf(data) != crc32c) {
    return Error(grpc::DATA_LOSS, "checksum", "CHECKSUM_MISMATCH", where);
  }
  if (offset > committed) return Error(grpc::FAILED_PRECONDITION, "gap", "OFFSET_GAP", where);
  const int64_t count = static_cast<int64_t>(data.size()) / unit;
  int64_t end = offset + count;
  if (fault) end = std::min(end, fault->after);
  if (end > committed) {
    bytes.append(data, static_cast<size_t>((committed - offset) * unit),
                 static_cast<size_t>((end - committed) * unit));
  }
  const bool breaks = fault && static_cast<int64_t>(bytes.size()) / unit >= fault->after;
  return breaks ? fault->status : grpc::Status::OK;
}

v1::Tensor FakeTensorService::FinishUpload(const std::string& upload) {
  const Upload done = uploads_[upload];
  uploads_.erase(upload);
  v1::TensorSpec spec = done.request.tensor();
  if (done.request.has_gram()) {
    spec.set_kind(v1::TENSOR_KIND_GRAM);
    spec.set_dtype(done.request.gram().gram_dtype());
  }
  const v1::Tensor tensor = Store(spec, done.bytes);
  requests_[done.request.request_id()] = tensor.name();
  return tensor;
}

grpc::Status FakeTensorService::WriteTensor(grpc::ServerContext*,
                                            grpc::ServerReader<v1::WriteTensorRequest>* reader,
                                            v1::WriteTensorResponse* response) {
  std::optional<StreamFault> fault;
  {
    MutexLock lock(mutex_);
    fault = NextStream();
  }
  std::string upload;
  v1::WriteTensorRequest request;
  while (reader->Read(&request)) {
    MutexLock lock(mutex_);
    if (upload.empty()) {
      upload = request.upload();
      first_offsets.push_back(request.chunk().offset());
    }
    const grpc::Status status = Commit(upload, request.chunk().offset(), 1, "committed_size",
                                       request.chunk().crc32c(), request.chunk().data(), fault);
    if (request.finish() && (status.ok() || fault)) {
      Upload& state = uploads_[upload];
      const auto total = request.chunk().offset() + std::ssize(request.chunk().data());
      if (std::ssize(state.bytes) == total) {
        if (CrcOf(state.bytes) != request.total_crc32c()) {
          return Error(grpc::DATA_LOSS, "checksum of the whole", "CHECKSUM_MISMATCH");
        }
        *response->mutable_tensor() = FinishUpload(upload);
      }
    }
    if (!status.ok()) return status;
  }
  return grpc::Status::OK;
}

grpc::Status FakeTensorService::AccumulateGram(
    grpc::ServerContext*, grpc::ServerReader<v1::AccumulateGramRequest>* reader,
    v1::AccumulateGramResponse* response) {
  std::optional<StreamFault> fault;
  {
    MutexLock lock(mutex_);
    fault = NextStream();
  }
  std::string upload;
  v1::AccumulateGramRequest request;
  while (reader->Read(&request)) {
    MutexLock lock(mutex_);
    if (upload.empty()) {
      upload = request.upload();
      first_offsets.push_back(request.token_offset());
    }
    const v1::GramSpec& gram = uploads_[upload].request.gram();
    const int64_t unit = gram.d_in() * (gram.activation_dtype() == v1::DATA_TYPE_F32 ? 4 : 2);
    const grpc::Status status = Commit(upload, request.token_offset(), unit, "committed_tokens",
                                       request.crc32c(), request.data(), fault);
    if (!status.ok()) return status;
    if (request.finish()) *response->mutable_gram() = FinishUpload(upload);
  }
  return grpc::Status::OK;
}

grpc::Status FakeTensorService::GetUpload(grpc::ServerContext*, const v1::GetUploadRequest* request,
                                          v1::Upload* upload) {
  MutexLock lock(mutex_);
  ++get_uploads;
  if (const grpc::Status fault = NextOf(get_upload_faults); !fault.ok()) return fault;
  const auto found = uploads_.find(request->name());
  if (found == uploads_.end()) return NoUpload(request->name());
  const auto& [create, bytes] = found->second;
  upload->set_name(request->name());
  if (create.has_gram()) {
    const int64_t unit =
        create.gram().d_in() * (create.gram().activation_dtype() == v1::DATA_TYPE_F32 ? 4 : 2);
    upload->set_committed_tokens(std::ssize(bytes) / unit);
  } else {
    upload->set_committed_size(std::ssize(bytes));
  }
  return grpc::Status::OK;
}

grpc::Status FakeTensorService::DeleteUpload(grpc::ServerContext*,
                                             const v1::DeleteUploadRequest* request,
                                             google::protobuf::Empty*) {
  MutexLock lock(mutex_);
  deleted.push_back(request->name());
  if (uploads_.erase(request->name()) == 0) return NoUpload(request->name());
  return lost_deletes-- > 0 ? grpc::Status(grpc::UNAVAILABLE, "connection reset")
                            : grpc::Status::OK;
}

grpc::Status FakeTensorService::GetTensor(grpc::ServerContext*, const v1::GetTensorRequest* request,
                                          v1::Tensor* tensor) {
  MutexLock lock(mutex_);
  const auto found = tensors_.find(request->name());
  if (found == tensors_.end()) {
    return Error(grpc::NOT_FOUND, "no tensor " + request->name(), "TENSOR_NOT_FOUND");
  }
  *tensor = found->second.tensor;
  if (describe) describe(tensor);
  return grpc::Status::OK;
}

grpc::Status FakeTensorService::DeleteTensor(grpc::ServerContext*,
                                             const v1::DeleteTensorRequest* request,
                                             google::protobuf::Empty*) {
  MutexLock lock(mutex_);
  deleted.push_back(request->name());
  if (tensors_.erase(request->name()) == 0) {
    return Error(grpc::NOT_FOUND, "no tensor " + request->name(), "TENSOR_NOT_FOUND");
  }
  return lost_deletes-- > 0 ? grpc::Status(grpc::UNAVAILABLE, "connection reset")
                            : grpc::Status::OK;
}

grpc::Status FakeTensorService::ReadTensor(grpc::ServerContext* context,
                                           const v1::ReadTensorRequest* request,
                                           grpc::ServerWriter<v1::ReadTensorResponse>* writer) {
  std::optional<ReadFault> fault;
  std::string bytes;
  {
    MutexLock lock(mutex_);
    read_offsets.push_back(request->offset());
    if (!read_faults.empty()) {
      fault = read_faults.front();
      read_faults.pop_front();
    }
    bytes = tensors_[request->name()].bytes;
  }
  if (silent_reads > 0) {
    --silent_reads;
    AwaitCancelled(context);
    return grpc::Status::CANCELLED;
  }
  const v1::ReadTensorResponse nothing;
  while (empty_chunks && writer->Write(nothing)) {
  }
  int64_t offset = request->offset();
  while (offset < std::ssize(bytes)) {
    int64_t size = std::min(read_chunk_bytes, std::ssize(bytes) - offset);
    if (fault && !fault->corrupt) size = std::min(size, fault->after - offset);
    if (size <= 0) return fault->status;
    v1::ReadTensorResponse response;
    v1::Chunk& chunk = *response.mutable_chunk();
    chunk.set_offset(offset);
    chunk.set_data(bytes.substr(static_cast<size_t>(offset), static_cast<size_t>(size)));
    chunk.set_crc32c(CrcOf(chunk.data()));
    if (fault && fault->corrupt && fault->after >= offset && fault->after < offset + size) {
      (*chunk.mutable_data())[static_cast<size_t>(fault->after - offset)] ^= 0x10;
    }
    if (!writer->Write(response)) return grpc::Status::OK;
    offset += size;
  }
  return grpc::Status::OK;
}

}  // namespace sparsefw::client::testing
