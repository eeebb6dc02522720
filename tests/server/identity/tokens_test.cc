#include "server/identity/tokens.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::StatusIs;

// printf %s open-sesame | sha256sum, by coreutils.
constexpr char kSesame[] = "d7ecdf25eaf3deba0f2628771dbdd22d4138ab6cf38f91ed02a2ca0dec7c8ab7";
constexpr char kOther[] = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";

std::string Line(const std::string& tenant, const std::string& hash,
                 const std::string& expiry = "") {
  return tenant + ":" + hash + (expiry.empty() ? "" : ":" + expiry) + "\n";
}

TEST(Sha256Test, OfPublishedVectors) {
  const auto expect = [](std::string_view data, std::string_view hex) {
    const auto digest = ParseSha256(hex);
    ASSERT_TRUE(digest.has_value());
    EXPECT_TRUE(EqualInConstantTime(Sha256(data), *digest)) << data;
  };
  // FIPS 180-2, B.1 and the empty message.
  expect("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  expect("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_FALSE(EqualInConstantTime(Sha256("abc"), Sha256("abd")));
  // Nobody can compare digests in a way that tells where they differ.
  static_assert(!std::equality_comparable<Sha256Digest>);
}

TEST(Sha256Test, HexHas64Digits) {
  EXPECT_TRUE(ParseSha256(kOther).has_value());
  EXPECT_FALSE(ParseSha256("").has_value());
  EXPECT_FALSE(ParseSha256(std::string(kOther).substr(1)).has_value());
  EXPECT_FALSE(ParseSha256(std::string(kOther) + "0").has_value());
  EXPECT_FALSE(ParseSha256(std::string(63, '0') + "g").has_value());
}

TEST(TokensTest, LinesCommentsAndExpiry) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const TokenTable table,
      TokenTable::Parse("# tokens\r\n\n  " + Line("alice", kSesame) + " # another\n" +
                            Line("bob", kOther, "2027-01-31T12:00:00+02:00") + "  \n",
                        "tokens"));
  ASSERT_EQ(table.entries().size(), 2U);
  const TokenTable::Entry* alice = table.Find(Sha256("open-sesame"));
  ASSERT_NE(alice, nullptr);
  EXPECT_EQ(alice->tenant, "alice");
  EXPECT_EQ(alice->expiry, absl::InfiniteFuture());
  EXPECT_EQ(table.entries()[1].expiry,
            absl::FromCivil(absl::CivilSecond(2027, 1, 31, 10), absl::UTCTimeZone()));
  EXPECT_EQ(table.Find(Sha256("open-sesam")), nullptr);
  EXPECT_EQ(table.Find(Sha256("")), nullptr);
}

TEST(TokensTest, NoTokensAtAll) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TokenTable table, TokenTable::Parse("", "tokens"));
  EXPECT_TRUE(table.entries().empty());
  EXPECT_EQ(table.Find(Sha256("x")), nullptr);
}

TEST(TokensTest, BadLinesNameFileLineAndRule) {
  const std::string good = Line("alice", kSesame);
  const auto bad = [&](const std::string& line, const std::string& words) {
    EXPECT_THAT(TokenTable::Parse(good + line, "etc/tokens"),
                StatusIs(absl::StatusCode::kInvalidArgument, "CONFIGURATION_INVALID",
                         "etc/tokens:2: ", words))
        << line;
  };
  bad("alice", "no colon");
  bad("secret-token-pasted-here", "no colon");
  bad(":" + std::string(kOther), "name of a tenant");
  bad("a b:" + std::string(kOther), "name of a tenant");
  bad("-a:" + std::string(kOther), "name of a tenant");
  bad(std::string(65, 'a') + ":" + kOther, "name of a tenant");
  bad("bob:abc", "64 hexadecimal digits, the SHA-256 of the token; got 3 characters");
  bad("bob:" + std::string(64, 'x'), "64 hexadecimal digits");
  bad("bob:" + std::string(kOther) + ":", "RFC 3339");
  bad("bob:" + std::string(kOther) + ":tomorrow", "RFC 3339");
  bad("bob:" + std::string(kOther) + ":infinite-future", "RFC 3339");
  bad("bob:" + std::string(kOther) + ":2027-01-31", "RFC 3339");
  bad("bob:" + std::string(kOther) + ":2027-13-31T12:00:00Z", "RFC 3339");
  bad("bob:" + std::string(kSesame), "line 1 has it too");
}

TEST(TokensTest, MessagesDoNotShowWhatMayBeAToken) {
  for (const std::string line : {"alice:hunter2hunter2", "hunter2hunter2",
                                 "hunter2hunter2:alice:hunter2hunter2", "hunter2 hunter2:x"}) {
    const auto table = TokenTable::Parse(line, "tokens");
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(std::string(table.status().message()).find("hunter2"), std::string::npos)
        << table.status();
  }
}

}  // namespace
}  // namespace sparsefw::server
