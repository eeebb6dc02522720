// Fingerprints, to compare requests that have the same request_id.
#ifndef SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_
#define SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_

#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

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

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CONVERT_FINGERPRINT_H_
