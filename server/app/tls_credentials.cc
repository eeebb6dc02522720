#include "server/app/tls_credentials.h"

#include <utility>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

absl::Status Bad(const std::string& file, const absl::Status& status) {
  return Invalid("CONFIGURATION_INVALID", "%s: %s", file, std::string(status.message()));
}

}  // namespace

// gRPC's C++ interface has no certificate fetcher, its core has.
class TlsCertificates::Fetched final : public grpc::ServerCredentials {
 public:
  explicit Fetched(std::shared_ptr<TlsCertificates> certificates)
      : certificates_(std::move(certificates)) {
    // Without a client's certificate there is no connection, not only no call.
    const auto request = certificates_->client_ca_.has_value()
                             ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &Fetch, this));
  }
  ~Fetched() override { grpc_server_credentials_release(credentials_); }

  // Does nothing: a processor would keep its findings with the connection (ADR 0020).
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // At every handshake, one at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<Fetched*>(self)->Fetch(config);
  }
  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config) {
    MutexLock lock(certificates_->mutex_);
    if (std::exchange(handed_out_, certificates_->generation_) == certificates_->generation_) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const Content& content = certificates_->content_;
    const grpc_ssl_pem_key_cert_pair pair = {content.key.c_str(), content.certificate.c_str()};
    // gRPC insists on a CA here also where clients are asked for no certificate.
    const std::string& roots = content.client_ca.empty() ? content.certificate : content.client_ca;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<TlsCertificates> certificates_;
  grpc_server_credentials* credentials_ = nullptr;
  int64_t handed_out_ = 0;  // guarded by certificates_->mutex_
};

TlsCertificates::TlsCertificates(TlsFiles files)
    : certificate_(std::move(files.certificate)), key_(std::move(files.key)) {
  if (!files.client_ca.empty()) client_ca_.emplace(std::move(files.client_ca));
}

absl::StatusOr<std::shared_ptr<TlsCertificates>> TlsCertificates::Open(TlsFiles files) {
  std::shared_ptr<TlsCertificates> certificates(new TlsCertificates(std::move(files)));
  SPARSEFW_RETURN_IF_ERROR(*certificates->Poll(true));
  return certificates;
}

std::shared_ptr<grpc::ServerCredentials> TlsCertificates::NewServerCredentials() {
  return std::make_shared<Fetched>(shared_from_this());
}

absl::StatusOr<TlsCertificates::Content> TlsCertificates::Read() {
  Content content;
  SPARSEFW_ASSIGN_OR_RETURN(content.certificate, certificate_.Read());
  SPARSEFW_ASSIGN_OR_RETURN(content.key, key_.Read());
  if (client_ca_.has_value()) {
    SPARSEFW_ASSIGN_OR_RETURN(content.client_ca, client_ca_->Read());
    const auto ca = ReadCertificates(content.client_ca);
    if (!ca.ok()) return Bad(client_ca_->path(), ca.status());
  }
  absl::StatusOr<CertificateFacts> facts = ReadCertificates(content.certificate);
  if (!facts.ok()) return Bad(certificate_.path(), facts.status());
  content.facts = *std::move(facts);
  const absl::Status pair = CheckKeyPair(content.certificate, content.key);
  if (!pair.ok()) return Bad(key_.path(), pair);
  return content;
}

std::optional<absl::Status> TlsCertificates::Poll(bool always) {
  // All are asked, also where the first has changed: each compares with its last look.
  const bool certificate = certificate_.SettledChange();
  const bool key = key_.SettledChange();
  const bool client_ca = client_ca_.has_value() && client_ca_->SettledChange();
  if (!always && !certificate && !key && !client_ca) return std::nullopt;
  absl::StatusOr<Content> content = Read();
  if (!content.ok()) return content.status();
  MutexLock lock(mutex_);
  content_ = *std::move(content);
  ++generation_;
  return absl::OkStatus();
}

CertificateFacts TlsCertificates::facts() const {
  MutexLock lock(mutex_);
  return content_.facts;
}

}  // namespace sparsefw::server
