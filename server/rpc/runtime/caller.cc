#include "server/rpc/runtime/caller.h"

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "server/identity/certificate.h"
#include "server/net/peer_address.h"

namespace sparsefw::server {
namespace {

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

void AddCertificate(const grpc::AuthContext& peer, Credentials* credentials) {
  const auto pem = peer.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.empty()) return;
  credentials->has_certificate = true;
  for (const grpc::string_ref& uri : peer.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    credentials->uris.emplace_back(uri.data(), uri.size());
  }
  const auto names = peer.FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.size() == 1) credentials->common_name = std::string(View(names.front()));
  // It was valid when the connection began, and the connection may be old.
  const auto facts = ReadCertificates(View(pem.front()));
  credentials->certificate_expiry = facts.ok() ? facts->not_after : absl::InfinitePast();
}

}  // namespace

absl::StatusOr<Identity> Authenticate(const Authenticator& authenticator,
                                      const grpc::ServerContextBase& rpc) {
  if (!authenticator.active()) return Identity();
  Credentials credentials;
  const auto [begin, end] = rpc.client_metadata().equal_range("authorization");
  for (auto entry = begin; entry != end; ++entry) {
    credentials.authorization.push_back(View(entry->second));
  }
  if (const std::shared_ptr<const grpc::AuthContext> peer = rpc.auth_context()) {
    AddCertificate(*peer, &credentials);
  }
  return authenticator.Authenticate(credentials, absl::Now());
}

std::string AddressKey(std::string_view peer) {
  const std::optional<PeerAddress> address = ParsePeerAddress(peer);
  if (!address) return std::string(peer);
  const PeerKey key = PeerKeyOf(*address);
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), key.size()});
}

}  // namespace sparsefw::server
