// Credentials of a connection over TLS.
#ifndef SPARSEFW_CLIENT_TLS_H_
#define SPARSEFW_CLIENT_TLS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace grpc {
class ChannelCredentials;
}

namespace sparsefw::client {

// PEM files. Each may be left empty.
struct TlsFiles {
  std::string ca;           // that signed the server's certificate; empty: gRPC's default roots
  std::string certificate;  // of this client, with `key`, where the server asks for one
  std::string key;
};

// For ClientOptions::credentials. The files are read once.
// Errors: InvalidArgument (CLIENT_ARGUMENT): a file that cannot be read or holds no certificate or
// no unencrypted key in PEM, a certificate without its key or the other way round.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsCredentials(const TlsFiles& files);

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_TLS_H_
