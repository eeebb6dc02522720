// Finds the tenant of a call from its credentials.
#ifndef SPARSEFW_SERVER_IDENTITY_AUTHENTICATOR_H_
#define SPARSEFW_SERVER_IDENTITY_AUTHENTICATOR_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/identity/owner.h"
#include "server/identity/sha256.h"
#include "server/identity/tenants.h"
#include "server/identity/tokens.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Credentials as plain values. TLS has verified the certificate.
struct Credentials {
  std::vector<std::string_view> authorization;  // every value of that metadata key
  bool has_certificate = false;
  std::vector<std::string> uris;  // its URI SANs
  std::string common_name;
  absl::Time certificate_expiry = absl::InfiniteFuture();
};

// Whom a call acts for, and why. Holds no secret.
struct Identity {
  std::string tenant = std::string(kDefaultTenant);
  std::optional<Sha256Digest> token;           // that it was recognised by
  absl::Time expiry = absl::InfiniteFuture();  // of the certificate
};

// Thread-safe. The rules:
//  - Neither tokens nor certificates are asked for: everybody is tenant `default`.
//  - A token names its tenant. A wrong one is refused, also beside a certificate.
//  - A certificate names the tenant of its URI SAN `sparsefw:tenant:NAME`, else its
//    common name. Beside a token only the SAN counts, and must name the same tenant:
//    so a proxy may have one certificate, and a stolen token is of no use elsewhere.
//  - With a tenants file the tenant must be in it.
// No message holds a token.
class Authenticator {
 public:
  struct Rules {
    bool tokens = false;        // --tokens
    bool certificates = false;  // --tls-client-ca
  };
  explicit Authenticator(Rules rules) : rules_(rules) {}

  // Replaces the table; calls under way are judged by Recheck.
  void SetTokens(TokenTable tokens);
  void SetTenants(TenantTable tenants);

  // Whether any call can be refused.
  bool active() const { return rules_.tokens || rules_.certificates; }

  // Errors: Unauthenticated   CREDENTIALS_MISSING, CREDENTIALS_INVALID,
  //                           CREDENTIALS_EXPIRED
  //         PermissionDenied  TENANT_NOT_ALLOWED, TENANT_MISMATCH
  absl::StatusOr<Identity> Authenticate(const Credentials& credentials, absl::Time now) const;

  // Whether the call may go on. Errors: as above: the token was taken out of the
  // file or has expired, as may the certificate; the tenant was taken out.
  absl::Status Recheck(const Identity& identity, absl::Time now) const;

  // The limits of a tenant that may call, and of `default` while everybody may.
  TenantLimits LimitsOf(std::string_view tenant) const;

 private:
  struct Tables {
    std::shared_ptr<const TokenTable> tokens = std::make_shared<const TokenTable>();
    std::shared_ptr<const TenantTable> tenants;  // null: there is no such file
  };
  Tables Now() const;
  static absl::Status Check(const Tables& tables, const Identity& identity, absl::Time now);

  const Rules rules_;
  mutable Mutex mutex_;
  Tables tables_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_AUTHENTICATOR_H_
