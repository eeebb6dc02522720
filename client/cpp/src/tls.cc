#include "sparsefw/client/tls.h"

#include <grpcpp/security/credentials.h>

#include <string_view>

#include "client/cpp/src/credentials/pem.h"
#include "client/cpp/src/credentials/small_file.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path, bool (*holds)(std::string_view),
                                    std::string_view what) {
  if (path.empty()) return std::string();
  SPARSEFW_ASSIGN_OR_RETURN(std::string text, internal::ReadSmallFile(path));
  if (!holds(text)) return Invalid("CLIENT_ARGUMENT", "%s: must hold %s in PEM", path, what);
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
  SPARSEFW_ASSIGN_OR_RETURN(options.pem_root_certs,
                            ReadPem(files.ca, internal::HoldsCertificate, "a certificate"));
  SPARSEFW_ASSIGN_OR_RETURN(
      options.pem_cert_chain,
      ReadPem(files.certificate, internal::HoldsCertificate, "a certificate"));
  SPARSEFW_ASSIGN_OR_RETURN(
      options.pem_private_key,
      ReadPem(files.key, internal::HoldsPrivateKey, "a private key that is not encrypted"));
  if (!files.key.empty() && !internal::IsPair(options.pem_cert_chain, options.pem_private_key)) {
    return Invalid("CLIENT_ARGUMENT", "%s: must hold the key of the certificate in %s", files.key,
                   files.certificate);
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::SslCredentials(options);
  if (credentials == nullptr) {
    return Invalid("CLIENT_ARGUMENT", "gRPC cannot use the certificates%s", "");
  }
  return credentials;
}

}  // namespace sparsefw::client
