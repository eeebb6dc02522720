// Who may use the server: certificates, tokens and tenants, from their files.
#ifndef SPARSEFW_SERVER_APP_ACCESS_H_
#define SPARSEFW_SERVER_APP_ACCESS_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "server/app/config.h"
#include "server/app/observe/logging.h"
#include "server/app/tls_credentials.h"
#include "server/identity/authenticator.h"
#include "server/identity/identity_files.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. The logger outlives it.
class Access {
 public:
  // Errors: InvalidArgument (CONFIGURATION_INVALID): what is wrong with which file
  static absl::StatusOr<std::unique_ptr<Access>> Open(const ServerConfig& config, Logger* logger);

  const Authenticator& authenticator() const { return authenticator_; }
  // Null: plain text.
  std::shared_ptr<grpc::ServerCredentials> NewServerCredentials();

  // When the certificate in use expires; nothing: plain text.
  std::optional<absl::Time> CertificateExpiry() const;

  // Reads the files that have changed (`all`: every one), and logs it. A file that
  // cannot be used is logged and what was read before stays in force. A certificate
  // that expires within two weeks is logged again every day. Touches the disk. True:
  // something was read.
  bool Poll(bool all = false, absl::Time now = absl::Now());

 private:
  Access(Authenticator::Rules rules, Logger* logger) : authenticator_(rules), logger_(*logger) {}
  void LogCertificate(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Authenticator authenticator_;
  Logger& logger_;
  std::shared_ptr<TlsCertificates> certificates_;  // null: plain text
  Mutex mutex_;                                    // one Poll at a time
  // When the certificate is worth a line again.
  absl::Time next_warning_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::unique_ptr<IdentityFiles> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_ACCESS_H_
