#include "server/net/listen_sockets.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::StatusIs;

TEST(HostPortTest, HostsAndPorts) {
  const auto name = ParseHostPort("localhost:80");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->host, "localhost");
  EXPECT_EQ(name->port, 80);
  const auto six = ParseHostPort("[::1]:0");
  ASSERT_TRUE(six.has_value());
  EXPECT_EQ(six->host, "[::1]");
  for (const char* text : {"", "80", ":80", "a", "a:", "a:65536", "a:8x", "a:-1", "::1:80"}) {
    EXPECT_FALSE(ParseHostPort(text).has_value()) << text;
  }
}

TEST(ListenTest, TakesAFreePortAndHoldsIt) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ListenSockets first, Listen({"127.0.0.1", 0}, "listen"));
  EXPECT_EQ(first.sockets.size(), 1u);
  EXPECT_GT(first.port, 0);
  EXPECT_THAT(
      Listen({"127.0.0.1", first.port}, "listen").status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "", "listen: Address already in use"));
}

TEST(ListenTest, KnowsWhatOtherMachinesCanReach) {
  for (const char* host : {"127.0.0.1", "127.9.8.7", "localhost", "[::1]", "[::ffff:127.0.0.1]"}) {
    const auto sockets = Listen({host, 0}, "listen");
    if (!sockets.ok() && std::string_view(host).starts_with('[')) continue;  // no IPv6 here
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    EXPECT_TRUE(sockets->loopback) << host;
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ListenSockets all, Listen({"0.0.0.0", 0}, "listen"));
  EXPECT_FALSE(all.loopback);
  const auto six = Listen({"[::]", 0}, "listen");
  EXPECT_FALSE(six.ok() && six->loopback);
}

TEST(ListenTest, SaysWhyNot) {
  EXPECT_THAT(Listen({"no.such.host.invalid", 0}, "listen").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "", "listen: "));
  EXPECT_THAT(Listen({"192.0.2.1", 0}, "listen").status(),
              StatusIs(absl::StatusCode::kAlreadyExists, "", "Cannot assign requested address"));
  EXPECT_FALSE(Listen({"[]", 0}, "listen").ok());
}

}  // namespace
}  // namespace sparsefw::server
