#include "server/net/connections.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/net/listen_sockets.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kLots = int64_t{1} << 40;

Connections::Limits Limits() {
  return {.unfinished_bytes = kLots,
          .peer_unfinished_bytes = kLots,
          .peer = {.calls = 100, .held_bytes = kLots, .peer_held_bytes = kLots, .turns = 2}};
}

// Both ends of a connection over the loopback.
struct Pair {
  Descriptor client;
  Descriptor server;
  std::shared_ptr<Connection> Of(const Connections& connections) const {
    return connections.Find(PeerAddressOf(server.get()).value());
  }
};

class ConnectionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(listening_, Listen({"127.0.0.1", 0}, "listen"));
  }
  // From 127.0.0.`host`.
  Pair Connect(uint32_t host = 1) const {
    Pair pair;
    pair.client = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where = {};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl((127U << 24) | host);
    auto* address = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(bind(pair.client.get(), address, sizeof(where)), 0);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(static_cast<uint16_t>(listening_.port));
    EXPECT_EQ(connect(pair.client.get(), address, sizeof(where)), 0);
    while (!pair.server.ok()) {
      pair.server = Descriptor(accept(listening_.sockets.front().get(), nullptr, nullptr));
    }
    return pair;
  }
  // Sends and reads, as gRPC would.
  static void Transfer(const Pair& pair, int64_t bytes) {
    std::thread sender([&pair, bytes] {
      const std::string data(static_cast<size_t>(bytes), 'x');
      for (size_t sent = 0; sent < data.size();) {
        const ssize_t n =
            send(pair.client.get(), data.data() + sent, data.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += static_cast<size_t>(n);
      }
    });
    std::string buffer(1 << 16, '\0');
    for (int64_t got = 0; got < bytes;) {
      const ssize_t n = recv(pair.server.get(), buffer.data(), buffer.size(), 0);
      if (n <= 0) break;
      got += n;
    }
    sender.join();
  }
  static bool IsClosed(const Pair& pair) {
    char byte = 0;
    const ssize_t got = recv(pair.client.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

  ListenSockets listening_;
};

TEST_F(ConnectionsTest, CountsUntilTheDescriptorIsClosed) {
  Connections connections(Limits());
  Pair one = Connect();
  const Pair two = Connect(2);
  ASSERT_TRUE(connections.Add(one.server));
  ASSERT_TRUE(connections.Add(two.server));
  connections.Sweep();
  EXPECT_EQ(connections.counts().connections, 2);
  EXPECT_EQ(connections.counts().peers, 2);
  const int number = one.server.get();
  one.server = Descriptor();
  // The number is that of another socket by now.
  const Descriptor other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(other.get(), number);
  EXPECT_NE(two.Of(connections), nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  connections.Sweep();
  EXPECT_EQ(connections.counts().connections, 1);
  EXPECT_EQ(connections.counts().peers, 1);
}

TEST_F(ConnectionsTest, LimitsAreOfAllAndOfAPeer) {
  Connections::Limits limits = Limits();
  limits.connections = 3;
  limits.peer_connections = 2;
  Connections connections(limits);
  std::vector<Pair> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(Connect());
  EXPECT_TRUE(connections.Add(pairs[0].server));
  EXPECT_TRUE(connections.Add(pairs[1].server));
  EXPECT_FALSE(connections.Add(pairs[2].server)) << "of one peer";
  // It is not looked at all connections for each one that a peer has too many: the next look waits.
  pairs[0].server = Descriptor();
  EXPECT_FALSE(connections.Add(pairs[2].server)) << "a look was just now";
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  EXPECT_TRUE(connections.Add(pairs[2].server));
  const Pair other = Connect(2);
  EXPECT_TRUE(connections.Add(other.server));
  const Pair third = Connect(3);
  EXPECT_FALSE(connections.Add(third.server)) << "of all";
  pairs[1].server = Descriptor();
  EXPECT_TRUE(connections.Add(third.server)) << "there is room at once";
}

TEST_F(ConnectionsTest, BytesThatNoCallWasGivenAreUnfinished) {
  Connections connections(Limits());
  const Pair pair = Connect();
  ASSERT_TRUE(connections.Add(pair.server));
  const auto connection = pair.Of(connections);
  ASSERT_TRUE(connection->Enter().ok());
  connections.Sweep();
  Transfer(pair, 8 << 20);
  connections.Sweep();
  EXPECT_GT(connections.counts().unfinished_bytes, 7 << 20);
  connection->Received(8 << 20);
  connections.Sweep();
  EXPECT_EQ(connections.counts().unfinished_bytes, 0);
  Transfer(pair, 4 << 20);
  connections.Sweep();
  EXPECT_GT(connections.counts().unfinished_bytes, 3 << 20);
  connection->Leave();
  connections.Sweep();
  EXPECT_EQ(connections.counts().unfinished_bytes, 0) << "no call, no message";
}

TEST_F(ConnectionsTest, ThePeerBeyondItsLimitLosesAllConnectionsButThoseThatHoldLittle) {
  Connections::Limits limits = Limits();
  limits.peer_unfinished_bytes = 6 << 20;
  Connections connections(limits);
  const Pair little = Connect(2);
  const Pair small = Connect(2);
  const Pair large = Connect(2);
  const Pair neighbour = Connect(3);
  for (const Pair* pair : {&little, &small, &large, &neighbour}) {
    ASSERT_TRUE(connections.Add(pair->server));
    ASSERT_TRUE(pair->Of(connections)->Enter().ok());
  }
  connections.Sweep();
  Transfer(little, 100 << 10);
  Transfer(small, 3 << 20);
  Transfer(large, 4 << 20);
  Transfer(neighbour, 5 << 20);
  connections.Sweep();
  EXPECT_TRUE(IsClosed(large));
  EXPECT_TRUE(IsClosed(small));
  EXPECT_FALSE(IsClosed(little));
  EXPECT_FALSE(IsClosed(neighbour));
  EXPECT_EQ(connections.counts().closed, 2);
}

TEST_F(ConnectionsTest, TheLargestOfAllGoesWhereAllAreBeyondTheLimit) {
  Connections::Limits limits = Limits();
  limits.unfinished_bytes = 6 << 20;
  Connections connections(limits);
  const Pair small = Connect(2);
  const Pair large = Connect(3);
  for (const Pair* pair : {&small, &large}) {
    ASSERT_TRUE(connections.Add(pair->server));
    ASSERT_TRUE(pair->Of(connections)->Enter().ok());
  }
  connections.Sweep();
  Transfer(small, 3 << 20);
  Transfer(large, 4 << 20);
  connections.Sweep();
  EXPECT_TRUE(IsClosed(large));
  EXPECT_FALSE(IsClosed(small));
}

TEST_F(ConnectionsTest, NothingMoreIsReadOfAClosedConnection) {
  Connections::Limits limits = Limits();
  limits.peer_unfinished_bytes = 1 << 20;
  Connections connections(limits);
  const Pair pair = Connect();
  ASSERT_TRUE(connections.Add(pair.server));
  ASSERT_TRUE(pair.Of(connections)->Enter().ok());
  connections.Sweep();
  Transfer(pair, 2 << 20);
  const std::string more(1000, 'x');
  ASSERT_EQ(send(pair.client.get(), more.data(), more.size(), MSG_NOSIGNAL), 1000);
  connections.Sweep();
  ASSERT_TRUE(IsClosed(pair));
  char byte = 0;
  EXPECT_LE(recv(pair.server.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(ConnectionsTest, WhatClosedConnectionsHeldCountsUntilTheirCallsEnd) {
  Connections::Limits limits = Limits();
  limits.peer_unfinished_bytes = 6 << 20;
  Connections connections(limits);
  const Pair large = Connect(2);
  const Pair small = Connect(2);
  for (const Pair* pair : {&large, &small}) {
    ASSERT_TRUE(connections.Add(pair->server));
    ASSERT_TRUE(pair->Of(connections)->Enter().ok());
  }
  const auto closed = large.Of(connections);
  connections.Sweep();
  Transfer(large, 8 << 20);
  connections.Sweep();
  ASSERT_TRUE(IsClosed(large));
  Transfer(small, 1 << 20);
  connections.Sweep();
  EXPECT_TRUE(IsClosed(small));
  EXPECT_FALSE(connections.Add(Connect(2).server)) << "it rests";
  closed->Leave();
  connections.Sweep();
  EXPECT_LT(connections.counts().unfinished_bytes, 2 << 20);
}

TEST_F(ConnectionsTest, WhoHoldsLittleIsSparedWhereAllTogetherHoldTooMuch) {
  Connections::Limits limits = Limits();
  limits.unfinished_bytes = 8 << 20;
  Connections connections(limits);
  const Pair large = Connect(2);
  const Pair little = Connect(3);
  for (const Pair* pair : {&large, &little}) {
    ASSERT_TRUE(connections.Add(pair->server));
    ASSERT_TRUE(pair->Of(connections)->Enter().ok());
  }
  const auto closed = large.Of(connections);
  connections.Sweep();
  Transfer(large, 10 << 20);
  Transfer(little, 1 << 20);
  // What the large one held counts until its calls end.
  for (int i = 0; i < 3; ++i) connections.Sweep();
  EXPECT_TRUE(IsClosed(large));
  EXPECT_FALSE(IsClosed(little));
  EXPECT_GT(connections.counts().unfinished_bytes, 8 << 20);
  EXPECT_EQ(connections.counts().closed, 1);
}

// 127.0.0.2:port is a client of 127.0.0.1 and of another address of the server.
TEST_F(ConnectionsTest, OneFarEndIsOneConnection) {
  Connections connections(Limits());
  const Pair one = Connect(2);
  ASSERT_TRUE(connections.Add(one.server));
  EXPECT_FALSE(connections.Add(one.server));
  EXPECT_EQ(connections.counts().connections, 1);
}

TEST_F(ConnectionsTest, HandshakesAndPingsAreNotUnfinished) {
  Connections connections(Limits());
  const Pair pair = Connect();
  ASSERT_TRUE(connections.Add(pair.server));
  const auto connection = pair.Of(connections);
  ASSERT_TRUE(connection->Enter().ok());
  Transfer(pair, 12 << 10);
  connections.Sweep();
  EXPECT_EQ(connections.counts().unfinished_bytes, 0);
  Transfer(pair, 12 << 10);
  connections.Sweep();
  EXPECT_GT(connections.counts().unfinished_bytes, 6 << 10) << "no handshake is so long";
}

TEST_F(ConnectionsTest, WhatIsAllowedBesideMessagesIsKnown) {
  Connections connections(Limits());
  const Pair pair = Connect();
  ASSERT_TRUE(connections.Add(pair.server));
  const auto connection = pair.Of(connections);
  const int64_t before = connection->peer().allowed();
  for (int i = 0; i < 1000; ++i) connection->Received(0);
  EXPECT_EQ(connection->peer().allowed() - before, connection->explained());
}

TEST_F(ConnectionsTest, SleepsWhileThereIsNoCall) {
  Connections connections(Limits());
  const Pair pair = Connect();
  ASSERT_TRUE(connections.Add(pair.server));
  EXPECT_GE(connections.Sweep().count(), 1000);
  const auto connection = pair.Of(connections);
  ASSERT_TRUE(connection->Enter().ok());
  uint64_t woken = 0;
  EXPECT_EQ(read(connections.wake_descriptor(), &woken, sizeof(woken)), 8);
  EXPECT_LT(connections.Sweep().count(), 1000);
  ASSERT_TRUE(connection->Enter().ok());
  EXPECT_EQ(read(connections.wake_descriptor(), &woken, sizeof(woken)), -1) << "it is awake";
}

TEST_F(ConnectionsTest, CallsAndHeldBytesOfAPeerAreLimited) {
  Connections::Limits limits = Limits();
  limits.peer.calls = 2;
  limits.peer.peer_held_bytes = 100;
  limits.peer.held_bytes = 150;
  Connections connections(limits);
  const Pair pair = Connect(2);
  const Pair other = Connect(3);
  ASSERT_TRUE(connections.Add(pair.server));
  ASSERT_TRUE(connections.Add(other.server));
  const auto one = pair.Of(connections);
  const auto two = other.Of(connections);
  EXPECT_TRUE(one->Enter().ok());
  EXPECT_TRUE(one->Enter().ok());
  EXPECT_FALSE(one->Enter().ok());
  EXPECT_EQ(connections.counts().calls, 3) << "it is there until its end is read";
  one->Leave();
  one->Leave();
  EXPECT_TRUE(one->Enter().ok());
  {
    const absl::StatusOr<HeldBytes> held = one->Hold(100);
    ASSERT_TRUE(held.ok());
    EXPECT_FALSE(one->Hold(1).ok());
    EXPECT_FALSE(two->Hold(51).ok()) << "of all";
  }
  EXPECT_EQ(connections.counts().held_bytes, 0);
  EXPECT_TRUE(two->Hold(100).ok());
}

TEST(PeerAddressTest, IsReadAsGrpcWritesIt) {
  const auto ipv4 = ParsePeerAddress("ipv4:127.0.0.1:4242");
  ASSERT_TRUE(ipv4.has_value());
  EXPECT_EQ(ipv4->port, 4242);
  EXPECT_EQ(PeerKeyOf(*ipv4), ipv4->address) << "an IPv4 address is a peer";
  for (const char* text :
       {"ipv6:%5B2001:db8::1%5D:80", "ipv6:[2001:db8::1]:80", "ipv6:%5B2001:db8::1%25eth0%5D:80"}) {
    const auto ipv6 = ParsePeerAddress(text);
    ASSERT_TRUE(ipv6.has_value()) << text;
    EXPECT_EQ(ipv6->port, 80);
    EXPECT_EQ(ipv6->address[15], 1);
    EXPECT_EQ(PeerKeyOf(*ipv6), PeerKeyOf(*ParsePeerAddress("ipv6:[2001:db8::ffff]:1")));
    EXPECT_NE(PeerKeyOf(*ipv6), PeerKeyOf(*ParsePeerAddress("ipv6:[2001:db8:0:1::1]:80")));
  }
  for (const char* text : {"", "inproc", "unix:/tmp/x", "ipv4:", "ipv4:1.2.3:4", "ipv4:1.2.3.4",
                           "ipv4:1.2.3.4:99999", "ipv6:[::g]:1"}) {
    EXPECT_EQ(ParsePeerAddress(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sparsefw::server
