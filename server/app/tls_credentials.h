// Certificates of the gRPC port, and their reload.
#ifndef SPARSEFW_SERVER_APP_TLS_CREDENTIALS_H_
#define SPARSEFW_SERVER_APP_TLS_CREDENTIALS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "server/identity/certificate.h"
#include "server/identity/watched_file.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Paths of PEM files: certificate with its chain, key, and the CA of client certificates, which is
// empty where clients need none.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string client_ca;
};

// The certificates of new connections. gRPC asks for them at every handshake through
// the certificate fetcher of its core, so that only files that were checked reach it:
// its FileWatcherCertificateProvider of version 1.51 drops what it has before it
// knows that the new pair is usable (ADR 0020).
//
// Thread-safe, but Poll is for one thread at a time. Poll and Open touch the disk.
class TlsCertificates : public std::enable_shared_from_this<TlsCertificates> {
 public:
  // Errors: InvalidArgument (CONFIGURATION_INVALID): a file that cannot be read or
  //         used, a key that is not the certificate's
  static absl::StatusOr<std::shared_ptr<TlsCertificates>> Open(TlsFiles files);

  // Credentials for one port. They keep this object alive.
  std::shared_ptr<grpc::ServerCredentials> NewServerCredentials();

  // Reads the files again when one has changed (`always`: in any case). Nothing:
  // none has. Where there is an error the old ones stay in use.
  std::optional<absl::Status> Poll(bool always = false);

  CertificateFacts facts() const;  // of the server's certificate in use

 private:
  struct Content {
    std::string certificate;
    std::string key;
    std::string client_ca;
    CertificateFacts facts;
  };
  class Fetched;
  explicit TlsCertificates(TlsFiles files);
  absl::StatusOr<Content> Read();

  WatchedFile certificate_;
  WatchedFile key_;
  std::optional<WatchedFile> client_ca_;
  mutable Mutex mutex_;
  Content content_ ABSL_GUARDED_BY(mutex_);
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_TLS_CREDENTIALS_H_
