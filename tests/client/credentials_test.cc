#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/client/tls.h"
#include "tests/client/client_fixture.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::client::testing {
namespace {

using sparsefw::testing::IsOk;
using sparsefw::testing::StatusIs;
using sparsefw::testing::TempFolder;
using sparsefw::testing::WriteFile;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ClientOptions WithToken(const std::string& token) {
  ClientOptions options = FastOptions();
  options.token = token;
  return options;
}

// Where nobody is.
ClientOptions Impatient(ClientOptions options) {
  options.connect_timeout = absl::Milliseconds(200);
  return options;
}

TEST(TokenTest, IsNotSentInPlainTextToAnotherMachine) {
  for (const char* address :
       {"192.0.2.1:1", "example.invalid:1", "127.evil.invalid:1", "127.0.0.1.evil.invalid:1",
        "localhost.evil.invalid:1", "[::ffff:192.0.2.1]:1", "dns:///localhost:1", "0.0.0.0:1"}) {
    const auto client = Client::Connect(address, WithToken("a-secret"));
    EXPECT_THAT(client, StatusIs(kInvalid, "CLIENT_ARGUMENT", "over TLS", address)) << address;
    EXPECT_EQ(client.status().ToString().find("a-secret"), std::string::npos);
  }
}

TEST(TokenTest, IsSentToThisMachine) {
  const FakeServer server;
  EXPECT_THAT(Client::Connect(server.address(), WithToken("a-secret")), IsOk());
  // Nobody is there, but it may be tried.
  for (const char* address : {"127.1.2.3:1", "localhost:1", "[::1]:1", "unix:/nowhere"}) {
    EXPECT_THAT(Client::Connect(address, Impatient(WithToken("a-secret"))),
                StatusIs(absl::StatusCode::kUnavailable, "UNREACHABLE"))
        << address;
  }
}

TEST(TokenTest, HoldsPrintableCharactersOnly) {
  for (const char* token : {"two words", "line\n", "tab\t", "\x7f", "\xc3\xa4"}) {
    EXPECT_THAT(Client::Connect("127.0.0.1:1", WithToken(token)),
                StatusIs(kInvalid, "CLIENT_ARGUMENT", "printable"));
  }
}

TEST(TlsCredentialsTest, FilesThatCannotBeUsed) {
  const TempFolder folder;
  const std::string text = folder.File("text.pem");
  const std::string certificate = folder.File("certificate.pem");
  const std::string none = folder.File("none.pem");
  WriteFile(text, "no PEM");
  WriteFile(certificate, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n");
  const auto invalid = [](const std::string& words) {
    return StatusIs(kInvalid, "CLIENT_ARGUMENT", words);
  };
  EXPECT_THAT(TlsCredentials({.ca = none, .certificate = "", .key = ""}), invalid("No such file"));
  EXPECT_THAT(TlsCredentials({.ca = text, .certificate = "", .key = ""}), invalid(text));
  EXPECT_THAT(TlsCredentials({.ca = "", .certificate = certificate, .key = ""}),
              invalid("together"));
  EXPECT_THAT(TlsCredentials({.ca = "", .certificate = "", .key = text}), invalid("together"));
  EXPECT_THAT(TlsCredentials({.ca = "", .certificate = certificate, .key = certificate}),
              invalid("PRIVATE KEY"));
}

}  // namespace
}  // namespace sparsefw::client::testing
