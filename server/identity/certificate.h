// Checks of PEM files before a TLS server uses them.
#ifndef SPARSEFW_SERVER_IDENTITY_CERTIFICATE_H_
#define SPARSEFW_SERVER_IDENTITY_CERTIFICATE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sparsefw::server {

struct CertificateFacts {
  std::string subject;  // "CN=server,O=..."
  absl::Time not_before;
  absl::Time not_after;
};

// The first certificate of a PEM text. Errors: InvalidArgument: there is none, or
// a later one cannot be read.
absl::StatusOr<CertificateFacts> ReadCertificates(std::string_view pem);

// Errors: InvalidArgument: a text without a certificate or an unencrypted private
// key, or a key that is not that of the first certificate.
absl::Status CheckKeyPair(std::string_view certificate_pem, std::string_view key_pem);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_CERTIFICATE_H_
