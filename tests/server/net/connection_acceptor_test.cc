#include "server/net/connection_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/net/descriptor.h"
#include "sparsefw/mutex.h"
#include "tests/testing/hang.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

Descriptor Connect(int port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_port = htons(static_cast<uint16_t>(port));
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0);
  return fd;
}

void SetSoftLimit(int64_t descriptors) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(descriptors);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(ListenSockets sockets, Listen({"127.0.0.1", 0}, "listen"));
    port_ = sockets.port;
    ConnectionAcceptor::Options options = {
        .reserved_descriptors = 8, .accepted = {}, .refused = [this] { ++refused_; }};
    options.accepted = [this](Descriptor connection) {
      MutexLock lock(mutex_);
      accepted_.push_back(std::move(connection));
      ++count_;
    };
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        acceptor_, ConnectionAcceptor::Start(std::move(sockets), std::move(options)));
  }
  void TearDown() override { SetSoftLimit(limit_); }

  static void Await(const std::atomic<int>& count, int wanted) {
    Eventually([&] { return count >= wanted; });
    EXPECT_EQ(count, wanted);
  }

  const int64_t limit_ = DescriptorLimit();
  int port_ = 0;
  Mutex mutex_;
  std::vector<Descriptor> accepted_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> count_{0};
  std::atomic<int> refused_{0};
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(ConnectionAcceptorTest, HandsOverNonBlockingSockets) {
  const Descriptor client = Connect(port_);
  Await(count_, 1);
  MutexLock lock(mutex_);
  EXPECT_NE(fcntl(accepted_[0].get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(accepted_[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(ConnectionAcceptorTest, RefusesWhatWouldTakeTheReserve) {
  const Descriptor first = Connect(port_);
  Await(count_, 1);
  SetSoftLimit(OpenDescriptors() + 4);
  const Descriptor second = Connect(port_);
  Await(refused_, 1);
  char byte = 0;
  EXPECT_EQ(recv(second.get(), &byte, 1, 0), 0) << "not closed";
  SetSoftLimit(limit_);
  const Descriptor third = Connect(port_);
  Await(count_, 2);
}

TEST_F(ConnectionAcceptorTest, AcceptsAgainAfterNoDescriptorWasLeft) {
  // Sockets of before: none can be made below.
  Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SetSoftLimit(3);
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_port = htons(static_cast<uint16_t>(port_));
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // The system completes the connection whether or not anybody accepts it.
  ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0);
  absl::SleepFor(absl::Milliseconds(20));  // lets an accept fail; the test passes without
  EXPECT_EQ(count_, 0);
  SetSoftLimit(limit_);
  Await(count_, 1);
  EXPECT_EQ(refused_, 0);
}

TEST_F(ConnectionAcceptorTest, TheEndClosesThePort) {
  acceptor_.reset();
  SPARSEFW_EXPECT_OK(Listen({"127.0.0.1", port_}, "listen").status());
}

}  // namespace
}  // namespace sparsefw::server
