#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/client/tls.h"
#include "tests/client/client_fixture.h"
#include "tests/server/identity/make_certificate.h"
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
  const auto write = [&folder](const std::string& name, const std::string& text) {
    WriteFile(folder.File(name), text);
    return folder.File(name);
  };
  const server::CertificatePair pair = server::MakeCertificate("client", -60, 60);
  const std::string text = write("text.pem", "no PEM");
  const std::string garbage =
      write("garbage.pem", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
  const std::string certificate = write("certificate.pem", pair.certificate);
  const std::string key = write("certificate.key", pair.key);
  const std::string encrypted = write("encrypted.key", pair.encrypted_key);
  const std::string other = write("other.key", server::MakeCertificate("other", -60, 60).key);
  const std::string none = folder.File("none.pem");
  const auto refused = [](const TlsFiles& files, const std::string& path,
                          const std::string& words) {
    EXPECT_THAT(TlsCredentials(files), StatusIs(kInvalid, "CLIENT_ARGUMENT", path, words));
  };
  for (const auto& [path, words] : {std::pair(none, "No such file"),
                                    {folder.File(""), "Is a directory"},
                                    {text, "a certificate in PEM"},
                                    {garbage, "a certificate in PEM"}}) {
    refused({.ca = path, .certificate = "", .key = ""}, path, words);
    refused({.ca = "", .certificate = path, .key = key}, path, words);
  }
  refused({.ca = "", .certificate = certificate, .key = ""}, "", "together");
  refused({.ca = "", .certificate = "", .key = text}, "", "together");
  refused({.ca = "", .certificate = certificate, .key = folder.File("")}, "", "Is a directory");
  for (const std::string& path : {certificate, encrypted}) {
    refused({.ca = "", .certificate = certificate, .key = path}, path, "not encrypted");
  }
  refused({.ca = "", .certificate = certificate, .key = other}, other,
          "the key of the certificate");
  EXPECT_THAT(TlsCredentials({.ca = certificate, .certificate = certificate, .key = key}), IsOk());
}

}  // namespace
}  // namespace sparsefw::client::testing
