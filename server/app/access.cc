#include "server/app/access.h"

#include <string>

#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kExpiresSoon = absl::Hours(14 * 24);
constexpr absl::Duration kWarningPeriod = absl::Hours(24);

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

absl::StatusOr<std::unique_ptr<Access>> Access::Open(const ServerConfig& config, Logger* logger) {
  std::unique_ptr<Access> access(new Access(
      {.tokens = !config.tokens.empty(), .certificates = !config.tls_client_ca.empty()}, logger));
  if (!config.tls_cert.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(
        access->certificates_,
        TlsCertificates::Open({config.tls_cert, config.tls_key, config.tls_client_ca}));
  }
  MutexLock lock(access->mutex_);
  if (access->certificates_ != nullptr) access->LogCertificate(absl::Now());
  SPARSEFW_ASSIGN_OR_RETURN(
      access->files_, IdentityFiles::Open(config.tokens, config.tenants, &access->authenticator_));
  return access;
}

std::shared_ptr<grpc::ServerCredentials> Access::NewServerCredentials() {
  return certificates_ == nullptr ? nullptr : certificates_->NewServerCredentials();
}

std::optional<absl::Time> Access::CertificateExpiry() const {
  if (certificates_ == nullptr) return std::nullopt;
  return certificates_->facts().not_after;
}

void Access::LogCertificate(absl::Time now) {
  const CertificateFacts facts = certificates_->facts();
  const std::string not_after = absl::FormatTime(facts.not_after, absl::UTCTimeZone());
  const absl::Time soon = facts.not_after - kExpiresSoon;
  next_warning_ = now < soon ? soon : now + kWarningPeriod;
  if (now >= facts.not_after || now < facts.not_before) {
    logger_.Log(LogLevel::kWarning, "certificate_not_valid",
                {{"subject", facts.subject},
                 {"not_before", absl::FormatTime(facts.not_before, absl::UTCTimeZone())},
                 {"not_after", not_after}});
  } else if (now >= soon) {
    logger_.Log(LogLevel::kWarning, "certificate_expires_soon",
                {{"subject", facts.subject},
                 {"not_after", not_after},
                 {"hours_left", absl::ToInt64Hours(facts.not_after - now)}});
  } else {
    logger_.Log(LogLevel::kInfo, "certificate",
                {{"subject", facts.subject}, {"not_after", not_after}});
  }
}

bool Access::Poll(bool all, absl::Time now) {
  MutexLock lock(mutex_);
  bool read = false;
  if (certificates_ != nullptr) {
    if (const std::optional<absl::Status> status = certificates_->Poll(all)) {
      read = true;
      if (status->ok()) {
        LogCertificate(now);
      } else {
        logger_.Log(LogLevel::kError, "reload_failed", {{"error", Text(*status)}});
      }
    }
    if (now >= next_warning_) LogCertificate(now);
  }
  for (const Reload& reload : files_->Poll(all)) {
    read = true;
    if (reload.status.ok()) {
      logger_.Log(LogLevel::kInfo, "reloaded",
                  {{"file", reload.file}, {"entries", reload.entries}});
    } else {
      logger_.Log(LogLevel::kError, "reload_failed", {{"error", Text(reload.status)}});
    }
  }
  return read;
}

}  // namespace sparsefw::server
