// One upload that survives broken streams, whatever travels in it.
#ifndef SPARSEFW_CLIENT_SRC_RESUMABLE_UPLOAD_H_
#define SPARSEFW_CLIENT_SRC_RESUMABLE_UPLOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/src/rpc.h"
#include "sparsefw/client/options.h"

namespace sparsefw::client::internal {

// The data of one upload. Positions count the unit that the server commits: bytes of a
// tensor, tokens of a Gram accumulation.
class UploadContent {
 public:
  virtual ~UploadContent() = default;
  // Without the request_id.
  virtual v1::CreateUploadRequest CreateRequest() const = 0;
  virtual int64_t Committed(const v1::Upload& upload) const = 0;
  // The key of ErrorInfo.metadata that carries the committed position.
  virtual std::string CommittedKey() const = 0;
  virtual int64_t total() const = 0;
  // Sends [from, total) on one stream and finishes the upload.
  virtual absl::StatusOr<v1::Tensor> SendFrom(const std::string& upload, int64_t from) = 0;
};

// Creates the upload and sends the content, again from the committed position
// whenever that can help, until it is complete or there was no progress for
// too long. `request_id`: see Client::UploadTensor.
absl::StatusOr<v1::Tensor> RunUpload(const Rpc& rpc, UploadContent& content,
                                     const CallOptions& call, const std::string& request_id);

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_RESUMABLE_UPLOAD_H_
