// Fingerprints, to compare requests that have the same request_id.
#ifndef SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_
#define SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_

#include <string>
#include <string_view>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/identity/sha256.h"
#include "server/jobs/job.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// The request without its request_id, serialised so that equal messages give equal bytes (maps in
// the order of their keys). With the fields that this version does not know: requests that differ
// in these alone are different requests to the client that sent them.
template <typename Request>
std::string CanonicalBytes(Request request) {
  request.clear_request_id();
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  request.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

inline std::string DigestOf(std::string_view bytes) {
  const Sha256Digest digest = Sha256(bytes);
  return std::string(digest.bytes.begin(), digest.bytes.end());
}

// 32 bytes, however large the request is: they are kept as long as what it made. They tell the
// calls apart that share request ids.
inline std::string DigestOf(std::string_view call, std::string_view bytes) {
  return DigestOf(std::string(call) + '\0' + std::string(bytes));
}

// For the calls that make jobs.
template <typename Request>
RequestDigest JobDigestOf(std::string_view call, Request request) {
  const std::string bytes = CanonicalBytes(std::move(request));
  return {DigestOf(call, bytes), DigestOf(bytes)};
}

// For the calls that make tensors: a dtype that is left out is its default.
inline std::string DigestOf(v1::CreateUploadRequest request) {
  if (request.has_gram() && request.gram().gram_dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    request.mutable_gram()->set_gram_dtype(v1::DATA_TYPE_F32);
  }
  return DigestOf("CreateUpload", CanonicalBytes(std::move(request)));
}
inline std::string DigestOf(v1::SumGramsRequest request) {
  if (request.gram_dtype() == v1::DATA_TYPE_UNSPECIFIED) request.set_gram_dtype(v1::DATA_TYPE_F32);
  return DigestOf("SumGrams", CanonicalBytes(std::move(request)));
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_
