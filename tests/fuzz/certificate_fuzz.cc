// PEM files, and the tenant that the names in a client's certificate stand for.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/identity/authenticator.h"
#include "server/identity/certificate.h"
#include "server/identity/tenants.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw;  // NOLINT: one function
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto facts = server::ReadCertificates(text);
  static_cast<void>(server::CheckKeyPair(text, text).ok());
  if (facts.ok()) fuzz::Require(facts->not_before != absl::InfiniteFuture(), "it has times");

  // The first line is the common name, the others are URIs.
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  server::Credentials credentials;
  credentials.has_certificate = true;
  credentials.common_name = lines.front();
  credentials.uris.assign(lines.begin() + 1, lines.end());
  const server::Authenticator authenticator({.tokens = false, .certificates = true});
  const auto identity =
      authenticator.Authenticate(credentials, absl::FromUnixSeconds(1'700'000'000));
  if (identity.ok()) fuzz::Require(server::IsTenantName(identity->tenant), "a tenant has a name");
  return 0;
}
