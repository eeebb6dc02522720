// Several addresses of which one is used.
#include "client/cpp/src/endpoints.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <functional>

#include "sparsefw/client/health.h"
#include "tests/client/client_fixture.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using testing::FakeServer;
using testing::FastOptions;

// A port of the loopback on which nobody listens any more; or, with `silent`, one that takes
// connections and never says anything.
class DeadAddress {
 public:
  explicit DeadAddress(bool silent) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    if (silent) {
      EXPECT_EQ(listen(socket_, 64), 0);
    }
    name_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~DeadAddress() { close(socket_); }
  const std::string& name() const { return name_; }

 private:
  const int socket_;
  std::string name_;
};

v1::TensorSpec Spec() { return WeightSpec(DType::kF32, 100, 250); }

class EndpointsTest : public testing::ClientTest {
 protected:
  void SetUp() override {}
  // Streams of uploads: on server_, and on other_.
  void ExpectStreams(int first, int second) const {
    EXPECT_EQ(server_.tensors.streams, first);
    EXPECT_EQ(other_.tensors.streams, second);
  }
  absl::Status ConnectTo(const std::string& addresses, ClientOptions options = FastOptions()) {
    auto client = Client::Connect(addresses, std::move(options));
    if (client.ok()) client_ = *std::move(client);
    return client.status();
  }
  absl::Status Upload() { return client_->UploadTensor(Spec(), View(bytes_)).status(); }

  const std::string bytes_ = RandomBytes(100'000, 3);
  FakeServer other_;
};

TEST_F(EndpointsTest, TheFirstIsUsed) {
  SPARSEFW_ASSERT_OK(ConnectTo(server_.address() + "," + other_.address()));
  SPARSEFW_ASSERT_OK(Upload());
  ExpectStreams(1, 0);
}

TEST_F(EndpointsTest, OneThatRefusesOrNeverAnswersIsPassedOver) {
  for (const bool silent : {false, true}) {
    const DeadAddress dead(silent);
    ClientOptions options = FastOptions();
    options.connect_timeout = absl::Hours(100);  // a dead address is not waited for
    SPARSEFW_ASSERT_OK(ConnectTo(dead.name() + "," + server_.address(), options));
    SPARSEFW_EXPECT_OK(Upload());
  }
  ExpectStreams(2, 0);
}

TEST_F(EndpointsTest, ALostOneIsReplaced) {
  SPARSEFW_ASSERT_OK(ConnectTo(server_.address() + "," + other_.address()));
  server_.Stop();
  SPARSEFW_EXPECT_OK(Upload());
  ExpectStreams(0, 1);
  // And by the first again, once it is back and the second lost.
  other_.Stop();
  server_.Start();
  SPARSEFW_EXPECT_OK(Upload());
  ExpectStreams(1, 1);
}

TEST_F(EndpointsTest, AnUploadThatTheOtherServerDoesNotKnowBeginsAnew) {
  SPARSEFW_ASSERT_OK(ConnectTo(server_.address() + "," + other_.address()));
  bool stopped = false;
  const auto tensor =
      client_->UploadTensor(Spec(), View(bytes_), [&](const TransferProgress& progress) {
        if (stopped || progress.done_bytes < 50'000) return;
        stopped = true;
        server_.Stop();
      });
  SPARSEFW_ASSERT_OK(tensor);
  EXPECT_EQ(other_.tensors.Bytes(tensor->name()), bytes_);
}

TEST_F(EndpointsTest, NoneThatAnswers) {
  const DeadAddress one(false), two(true);
  ClientOptions options = FastOptions();
  options.connect_timeout = absl::Milliseconds(600);
  const std::string addresses = one.name() + "," + two.name();
  EXPECT_THAT(ConnectTo(addresses, options),
              StatusIs(absl::StatusCode::kUnavailable, "UNREACHABLE", addresses));
}

// gRPC would wait for a name that it cannot resolve, as for a server that is down.
TEST_F(EndpointsTest, WhatIsNoAddressIsRefusedAtOnce) {
  for (const char* text :
       {"127.0.0.1", ":abc", ":1", "host:", "host:abc", "host:+1", "host:0", "127.0.0.1:99999",
        "http://127.0.0.1:50051", "host/path:1", "a host:1", "::1:50051", "[::1]", "[host]:1"}) {
    EXPECT_THAT(ConnectTo(text), StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT",
                                          "must be HOST:PORT with a port in [1, 65535]", text));
    EXPECT_THAT(CheckHealth(text, FastOptions()),
                StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", text));
  }
  for (const char* text : {"127.0.0.1:1", "localhost:65535", "a.b-c.example:50051", "[::1]:1",
                           "[fe80::1%eth0]:1", "unix:/run/s", "unix-abstract:s", "dns:///host:1",
                           "dns:host", "ipv4:127.0.0.1:1", "ipv6:[::1]:1"}) {
    EXPECT_TRUE(internal::IsAddress(text)) << text;
  }
}

TEST_F(EndpointsTest, RetriesThatWouldNotWaitOrNeverEndAreRefused) {
  const auto with = [this](const std::function<void(RetryOptions&)>& change) {
    ClientOptions options = FastOptions();
    change(options.retry);
    return ConnectTo(server_.address(), options);
  };
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT",
                                "0 < initial_backoff <= max_backoff, multiplier >= 1");
  EXPECT_THAT(with([](RetryOptions& retry) { retry.initial_backoff = absl::ZeroDuration(); }),
              refused);
  EXPECT_THAT(with([](RetryOptions& retry) { retry.max_backoff = absl::Nanoseconds(1); }), refused);
  EXPECT_THAT(with([](RetryOptions& retry) { retry.multiplier = std::nan(""); }), refused);
  EXPECT_THAT(with([](RetryOptions& retry) { retry.give_up_after = -absl::Seconds(1); }), refused);
}

TEST_F(EndpointsTest, AreAllChecked) {
  for (const std::string& addresses : {server_.address() + ",", "," + server_.address()}) {
    EXPECT_THAT(ConnectTo(addresses), StatusIs(absl::StatusCode::kInvalidArgument,
                                               "CLIENT_ARGUMENT", "HOST:PORT", addresses));
  }
  ClientOptions options = FastOptions();
  options.token = "a-secret";
  SPARSEFW_EXPECT_OK(ConnectTo(server_.address() + "," + other_.address(), options));
  EXPECT_THAT(ConnectTo(server_.address() + ",192.0.2.1:1", options),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "192.0.2.1:1"));
}

}  // namespace
}  // namespace sparsefw::client
