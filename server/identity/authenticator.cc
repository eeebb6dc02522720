#include "server/identity/authenticator.h"

#include <utility>

#include "absl/strings/match.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kTenantUri = "sparsefw:tenant:";

absl::Status Unauthenticated(Reason reason, std::string_view message) {
  return Refuse(absl::StatusCode::kUnauthenticated, reason, "%s", message);
}

// Nothing where the call has none.
absl::StatusOr<std::optional<std::string_view>> BearerToken(
    const std::vector<std::string_view>& authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (authorization.empty()) return std::optional<std::string_view>();
  const std::string_view value = authorization.front();
  // The scheme is case-insensitive (RFC 9110).
  const bool bearer = value.size() > kScheme.size() &&
                      absl::StartsWithIgnoreCase({value.data(), value.size()}, kScheme);
  if (authorization.size() > 1 || !bearer) {
    return Unauthenticated("CREDENTIALS_INVALID",
                           "the metadata authorization must be there once and be \"Bearer\" "
                           "with a token");
  }
  return std::optional(value.substr(kScheme.size()));
}

// Nothing where no URI names a tenant.
absl::StatusOr<std::optional<std::string>> TenantOfUris(const std::vector<std::string>& uris) {
  std::optional<std::string> tenant;
  for (const std::string& uri : uris) {
    if (!std::string_view(uri).starts_with(kTenantUri)) continue;
    std::string name = uri.substr(kTenantUri.size());
    if (tenant.has_value() || !IsTenantName(name)) {
      return Unauthenticated("CREDENTIALS_INVALID",
                             "the client certificate must have one URI sparsefw:tenant:NAME with "
                             "the name of a tenant");
    }
    tenant = std::move(name);
  }
  return tenant;
}

absl::StatusOr<std::string> TenantOfCertificate(const Credentials& credentials) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<std::string> named, TenantOfUris(credentials.uris));
  if (named.has_value()) return *named;
  if (IsTenantName(credentials.common_name)) return credentials.common_name;
  return Unauthenticated("CREDENTIALS_INVALID",
                         "the client certificate must name a tenant, in a URI sparsefw:tenant:NAME "
                         "or as its common name");
}

}  // namespace

void Authenticator::SetTokens(TokenTable tokens) {
  auto table = std::make_shared<const TokenTable>(std::move(tokens));
  MutexLock lock(mutex_);
  tables_.tokens = std::move(table);
}

void Authenticator::SetTenants(TenantTable tenants) {
  auto table = std::make_shared<const TenantTable>(std::move(tenants));
  MutexLock lock(mutex_);
  tables_.tenants = std::move(table);
}

Authenticator::Tables Authenticator::Now() const {
  MutexLock lock(mutex_);
  return tables_;
}

absl::StatusOr<Identity> Authenticator::Authenticate(const Credentials& credentials,
                                                     absl::Time now) const {
  Identity identity;
  if (!active()) return identity;
  const bool certificate = rules_.certificates && credentials.has_certificate;
  if (certificate) identity.expiry = credentials.certificate_expiry;
  const Tables tables = Now();
  std::optional<std::string_view> token;
  if (rules_.tokens) {
    SPARSEFW_ASSIGN_OR_RETURN(token, BearerToken(credentials.authorization));
  }
  if (token.has_value()) {
    identity.token = Sha256(*token);
    const TokenTable::Entry* entry = tables.tokens->Find(*identity.token);
    if (entry == nullptr) {
      return Unauthenticated("CREDENTIALS_INVALID", "this server does not know the token");
    }
    identity.tenant = entry->tenant;
  } else if (certificate) {
    SPARSEFW_ASSIGN_OR_RETURN(identity.tenant, TenantOfCertificate(credentials));
  } else {
    return Unauthenticated("CREDENTIALS_MISSING",
                           rules_.tokens
                               ? "this server needs a token: metadata authorization: Bearer TOKEN"
                               : "this server needs a client certificate");
  }
  if (token.has_value() && certificate) {
    SPARSEFW_ASSIGN_OR_RETURN(const std::optional<std::string> named,
                              TenantOfUris(credentials.uris));
    if (named.has_value() && *named != identity.tenant) {
      return Refuse(absl::StatusCode::kPermissionDenied, "TENANT_MISMATCH",
                    "the client certificate is of another tenant than the token");
    }
  }
  SPARSEFW_RETURN_IF_ERROR(Check(tables, identity, now));
  return identity;
}

absl::Status Authenticator::Recheck(const Identity& identity, absl::Time now) const {
  return active() ? Check(Now(), identity, now) : absl::OkStatus();
}

absl::Status Authenticator::Check(const Tables& tables, const Identity& identity, absl::Time now) {
  if (now >= identity.expiry) {
    return Unauthenticated("CREDENTIALS_EXPIRED", "the client certificate has expired");
  }
  if (identity.token.has_value()) {
    const TokenTable::Entry* entry = tables.tokens->Find(*identity.token);
    if (entry == nullptr || entry->tenant != identity.tenant) {
      return Unauthenticated("CREDENTIALS_INVALID", "the token has been revoked");
    }
    if (now >= entry->expiry) {
      return Unauthenticated("CREDENTIALS_EXPIRED", "the token has expired");
    }
  }
  if (tables.tenants != nullptr && tables.tenants->Find(identity.tenant) == nullptr) {
    return Refuse(absl::StatusCode::kPermissionDenied, "TENANT_NOT_ALLOWED",
                  "tenant %s may not use this server", identity.tenant);
  }
  return absl::OkStatus();
}

TenantLimits Authenticator::LimitsOf(std::string_view tenant) const {
  const Tables tables = Now();
  if (tables.tenants == nullptr) return TenantLimits();
  const TenantLimits* limits = tables.tenants->Find(tenant);
  return limits == nullptr ? TenantLimits() : *limits;
}

}  // namespace sparsefw::server
