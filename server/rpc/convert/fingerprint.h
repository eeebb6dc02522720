// Fingerprints, to compare requests that have the same request_id.
#ifndef SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_
#define SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_

#include <string>
#include <string_view>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/identity/sha256.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// The request without its request_id, serialised so that equal messages give
// equal bytes (maps in the order of their keys).
template <typename Request>
std::string FingerprintOf(Request request) {
  request.clear_request_id();
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  request.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

// Of the calls that share the request ids of tensors. 32 bytes, which tell the calls apart; a
// dtype that is left out is its default.
inline std::string DigestOf(std::string_view call, std::string_view fingerprint) {
  const Sha256Digest digest = Sha256(std::string(call) + '\0' + std::string(fingerprint));
  return std::string(digest.bytes.begin(), digest.bytes.end());
}
inline std::string DigestOf(v1::CreateUploadRequest request) {
  if (request.has_gram() && request.gram().gram_dtype() == v1::DTYPE_UNSPECIFIED) {
    request.mutable_gram()->set_gram_dtype(v1::F32);
  }
  return DigestOf("CreateUpload", FingerprintOf(std::move(request)));
}
inline std::string DigestOf(v1::SumGramsRequest request) {
  if (request.gram_dtype() == v1::DTYPE_UNSPECIFIED) request.set_gram_dtype(v1::F32);
  return DigestOf("SumGrams", FingerprintOf(std::move(request)));
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_
