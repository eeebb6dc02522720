#include "server/identity/authenticator.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

std::string Hex(std::string_view token) {
  std::string hex;
  for (const uint8_t byte : Sha256(token).bytes) hex += absl::StrFormat("%02x", byte);
  return hex;
}

TokenTable Tokens(const std::string& text) {
  auto table = TokenTable::Parse(text, "tokens");
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

TenantTable Tenants(const std::string& text) {
  auto table = TenantTable::Parse(text, "tenants");
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

Credentials Bearer(std::string_view value) {
  Credentials credentials;
  credentials.authorization = {value};
  return credentials;
}

Credentials Certificate(std::vector<std::string> uris, std::string common_name = "") {
  Credentials credentials;
  credentials.has_certificate = true;
  credentials.uris = std::move(uris);
  credentials.common_name = std::move(common_name);
  return credentials;
}

class AuthenticatorTest : public ::testing::Test {
 protected:
  void SetUp() override { tokens_.SetTokens(Tokens("alice:" + Hex("a-token") + "\n")); }

  static void ExpectTenant(const absl::StatusOr<Identity>& identity, const std::string& tenant) {
    ASSERT_THAT(identity, IsOk());
    EXPECT_EQ(identity->tenant, tenant);
  }

  Authenticator open_{{}};
  Authenticator tokens_{{.tokens = true}};
  Authenticator certificates_{{.certificates = true}};
};

TEST_F(AuthenticatorTest, WithoutRulesEverybodyIsDefault) {
  EXPECT_FALSE(open_.active());
  ExpectTenant(open_.Authenticate({}, kNow), "default");
  ExpectTenant(open_.Authenticate(Bearer("Bearer nonsense"), kNow), "default");
  ExpectTenant(open_.Authenticate(Certificate({"sparsefw:tenant:eve"}), kNow), "default");
}

TEST_F(AuthenticatorTest, ATokenNamesItsTenant) {
  ExpectTenant(tokens_.Authenticate(Bearer("Bearer a-token"), kNow), "alice");
  ExpectTenant(tokens_.Authenticate(Bearer("bearer a-token"), kNow), "alice");
}

TEST_F(AuthenticatorTest, MissingAndWrongTokens) {
  EXPECT_THAT(tokens_.Authenticate({}, kNow), StatusIs(kUnauthenticated, "CREDENTIALS_MISSING"));
  for (const char* value : {"", "a-token", "Bearer", "Bearer ", "Basic a-token", "Bearer a-toke",
                            "Bearer a-token ", "Bearer  a-token", "Bearer a-token2"}) {
    EXPECT_THAT(tokens_.Authenticate(Bearer(value), kNow),
                StatusIs(kUnauthenticated, "CREDENTIALS_INVALID"))
        << value;
  }
  Credentials twice = Bearer("Bearer a-token");
  twice.authorization.push_back("Bearer a-token");
  EXPECT_THAT(tokens_.Authenticate(twice, kNow), StatusIs(kUnauthenticated, "CREDENTIALS_INVALID"));
  // A certificate that nobody asked for says nothing.
  EXPECT_THAT(tokens_.Authenticate(Certificate({"sparsefw:tenant:alice"}), kNow),
              StatusIs(kUnauthenticated, "CREDENTIALS_MISSING"));
  // The hash is not the token.
  EXPECT_THAT(tokens_.Authenticate(Bearer("Bearer " + Hex("a-token")), kNow),
              StatusIs(kUnauthenticated, "CREDENTIALS_INVALID"));
}

TEST_F(AuthenticatorTest, MessagesDoNotHoldTheToken) {
  for (const std::string value : {"Bearer hunter2", "hunter2", "Basic hunter2"}) {
    const auto refused = tokens_.Authenticate(Bearer(value), kNow);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().ToString().find("hunter2"), std::string::npos) << refused.status();
  }
}

TEST_F(AuthenticatorTest, ATokenExpires) {
  tokens_.SetTokens(Tokens("alice:" + Hex("a-token") + ":" +
                           absl::FormatTime(absl::RFC3339_full, kNow, absl::UTCTimeZone())));
  const absl::Time before = kNow - absl::Nanoseconds(1);
  const auto identity = tokens_.Authenticate(Bearer("Bearer a-token"), before);
  ExpectTenant(identity, "alice");
  EXPECT_THAT(tokens_.Recheck(*identity, before), IsOk());
  EXPECT_THAT(tokens_.Recheck(*identity, kNow), StatusIs(kUnauthenticated, "CREDENTIALS_EXPIRED"));
  EXPECT_THAT(tokens_.Authenticate(Bearer("Bearer a-token"), kNow),
              StatusIs(kUnauthenticated, "CREDENTIALS_EXPIRED"));
}

TEST_F(AuthenticatorTest, ARevokedTokenEndsWhatItBegan) {
  const auto identity = tokens_.Authenticate(Bearer("Bearer a-token"), kNow);
  ASSERT_THAT(identity, IsOk());
  tokens_.SetTokens(Tokens("alice:" + Hex("another")));
  EXPECT_THAT(tokens_.Recheck(*identity, kNow), StatusIs(kUnauthenticated, "CREDENTIALS_INVALID"));
  // Given to another tenant, it does not give the call to that one.
  tokens_.SetTokens(Tokens("bob:" + Hex("a-token")));
  EXPECT_THAT(tokens_.Recheck(*identity, kNow), StatusIs(kUnauthenticated, "CREDENTIALS_INVALID"));
  tokens_.SetTokens(Tokens("bob:" + Hex("b") + "\nalice:" + Hex("a-token")));
  EXPECT_THAT(tokens_.Recheck(*identity, kNow), IsOk());
}

TEST_F(AuthenticatorTest, ACertificateNamesItsTenant) {
  ExpectTenant(certificates_.Authenticate(Certificate({"sparsefw:tenant:alice"}, "cn"), kNow),
               "alice");
  ExpectTenant(certificates_.Authenticate(
                   Certificate({"spiffe://x/y", "sparsefw:tenant:alice"}, "cn"), kNow),
               "alice");
  ExpectTenant(certificates_.Authenticate(Certificate({"spiffe://x/y"}, "cn"), kNow), "cn");
  ExpectTenant(certificates_.Authenticate(Certificate({}, "cn"), kNow), "cn");
}

TEST_F(AuthenticatorTest, CertificatesThatNameNoTenant) {
  EXPECT_THAT(certificates_.Authenticate({}, kNow),
              StatusIs(kUnauthenticated, "CREDENTIALS_MISSING", "certificate"));
  // Tokens are not asked for: one is no credential.
  EXPECT_THAT(certificates_.Authenticate(Bearer("Bearer a-token"), kNow),
              StatusIs(kUnauthenticated, "CREDENTIALS_MISSING"));
  const auto invalid = StatusIs(kUnauthenticated, "CREDENTIALS_INVALID");
  EXPECT_THAT(certificates_.Authenticate(Certificate({}), kNow), invalid);
  EXPECT_THAT(certificates_.Authenticate(Certificate({}, "a b"), kNow), invalid);
  // A URI that is meant to name a tenant and does not is no reason to take the name.
  EXPECT_THAT(certificates_.Authenticate(Certificate({"sparsefw:tenant:"}, "cn"), kNow), invalid);
  EXPECT_THAT(certificates_.Authenticate(
                  Certificate({"sparsefw:tenant:alice", "sparsefw:tenant:bob"}, "cn"), kNow),
              invalid);
}

TEST_F(AuthenticatorTest, ACertificateExpiresOnAnOpenConnection) {
  Credentials credentials = Certificate({}, "cn");
  credentials.certificate_expiry = kNow + absl::Seconds(1);
  const auto identity = certificates_.Authenticate(credentials, kNow);
  ASSERT_THAT(identity, IsOk());
  EXPECT_THAT(certificates_.Recheck(*identity, kNow), IsOk());
  EXPECT_THAT(certificates_.Recheck(*identity, kNow + absl::Seconds(1)),
              StatusIs(kUnauthenticated, "CREDENTIALS_EXPIRED"));
  EXPECT_THAT(certificates_.Authenticate(credentials, kNow + absl::Seconds(1)),
              StatusIs(kUnauthenticated, "CREDENTIALS_EXPIRED"));
}

TEST_F(AuthenticatorTest, TokenAndCertificateTogether) {
  Authenticator both({.tokens = true, .certificates = true});
  both.SetTokens(Tokens("alice:" + Hex("a-token")));
  Credentials credentials = Certificate({}, "gateway");
  ExpectTenant(both.Authenticate(credentials, kNow), "gateway");
  credentials.authorization = {"Bearer a-token"};
  ExpectTenant(both.Authenticate(credentials, kNow), "alice");
  credentials.authorization = {"Bearer wrong"};
  EXPECT_THAT(both.Authenticate(credentials, kNow),
              StatusIs(kUnauthenticated, "CREDENTIALS_INVALID"));
  credentials.authorization = {"Bearer a-token"};
  credentials.uris = {"sparsefw:tenant:alice"};
  ExpectTenant(both.Authenticate(credentials, kNow), "alice");
  credentials.uris = {"sparsefw:tenant:bob"};
  EXPECT_THAT(both.Authenticate(credentials, kNow), StatusIs(kDenied, "TENANT_MISMATCH"));
}

TEST_F(AuthenticatorTest, ATenantThatIsNotInTheFileMayNot) {
  const auto identity = tokens_.Authenticate(Bearer("Bearer a-token"), kNow);
  ASSERT_THAT(identity, IsOk());
  EXPECT_EQ(tokens_.LimitsOf("alice"), TenantLimits());
  tokens_.SetTenants(Tenants("[bob]\n"));
  EXPECT_THAT(tokens_.Authenticate(Bearer("Bearer a-token"), kNow),
              StatusIs(kDenied, "TENANT_NOT_ALLOWED", "alice"));
  EXPECT_THAT(tokens_.Recheck(*identity, kNow), StatusIs(kDenied, "TENANT_NOT_ALLOWED"));
  tokens_.SetTenants(Tenants("[alice]\nmax-uploads = 3\n"));
  ExpectTenant(tokens_.Authenticate(Bearer("Bearer a-token"), kNow), "alice");
  EXPECT_EQ(tokens_.LimitsOf("alice").max_uploads, 3);
  // Where nobody is asked for credentials the file limits, but shuts nobody out.
  open_.SetTenants(Tenants("[default]\nmax-uploads = 4\n"));
  ExpectTenant(open_.Authenticate({}, kNow), "default");
  EXPECT_EQ(open_.LimitsOf("default").max_uploads, 4);
}

}  // namespace
}  // namespace sparsefw::server
