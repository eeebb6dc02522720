#include "sparsefw/client/tls.h"

#include <grpcpp/security/credentials.h>

#include <string_view>

#include "absl/strings/match.h"
#include "client/cpp/src/credentials/small_file.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path, const std::string& kind) {
  if (path.empty()) return std::string();
  SPARSEFW_ASSIGN_OR_RETURN(std::string text, internal::ReadSmallFile(path));
  // gRPC would say nothing but that it cannot connect.
  if (!absl::StrContains(text, "-----BEGIN ") || !absl::StrContains(text, kind)) {
    return Invalid("CLIENT_ARGUMENT", "%s: must hold a %s in PEM", path, kind);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsCredentials(const TlsFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return Invalid("CLIENT_ARGUMENT",
                   "a client certificate and its key must be given together; there is only the %s",
                   files.key.empty() ? "certificate" : "key");
  }
  grpc::SslCredentialsOptions options;
  SPARSEFW_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(files.ca, "CERTIFICATE"));
  SPARSEFW_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem(files.certificate, "CERTIFICATE"));
  SPARSEFW_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem(files.key, "PRIVATE KEY"));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::SslCredentials(options);
  if (credentials == nullptr) {
    return Invalid("CLIENT_ARGUMENT", "gRPC cannot use the certificates%s", "");
  }
  return credentials;
}

}  // namespace sparsefw::client
