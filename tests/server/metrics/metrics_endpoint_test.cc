#include "server/metrics/metrics_endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing::StatusIs;

// The whole answer to these bytes.
std::string Ask(const MetricsEndpoint& endpoint, const std::string& request) {
  const std::string& address = endpoint.address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_port = htons(static_cast<uint16_t>(port));
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection, reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0);
  EXPECT_EQ(send(connection, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  std::array<char, 65536> buffer;
  for (ssize_t size; (size = recv(connection, buffer.data(), buffer.size(), 0)) > 0;) {
    answer.append(buffer.data(), static_cast<size_t>(size));
  }
  close(connection);
  return answer;
}

std::string Get(const MetricsEndpoint& endpoint, const std::string& path) {
  return Ask(endpoint, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

class MetricsEndpointTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(std::string_view address) {
    return MetricsEndpoint::Start(
        address, true,
        {.metrics = metrics_.get(),
         .not_ready = [this] { return not_ready_; },
         .pages = {{"/page", {"text/html", "default-src 'none'", [] { return "<p>"; }}},
                   {"/plain", {"application/json", "", [] { return "{}"; }}}}},
        [] {});
  }

  std::string not_ready_;  // set before a request, so the endpoint's thread sees it
  const std::unique_ptr<Metrics> metrics_ = std::make_unique<Metrics>(
      BuildInfo{"1.2.3", "gcc", "Release"}, std::vector<DeviceInfo>(), absl::UnixEpoch());
};

TEST_F(MetricsEndpointTest, ServesTheMetricsOnThePortItSays) {
  metrics_->SetGauges([] { return Gauges{.tensors = {.tensors = 42}}; });
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto endpoint, Start("127.0.0.1:0"));
  EXPECT_THAT(endpoint->address(), AllOf(StartsWith("127.0.0.1:"), Not(EndsWith(":0"))));
  metrics_->RpcStarted("PruneService/GetJob");
  const std::string answer = Get(*endpoint, "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\nsparsefw_tensors 42\n"));
  EXPECT_THAT(answer, HasSubstr("sparsefw_rpc_started_total{method=\"PruneService/GetJob\"} 1\n"));
  EXPECT_THAT(Get(*endpoint, "/elsewhere"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(MetricsEndpointTest, PagesHaveTheirTypeAndPolicyAndAreNotKept) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto endpoint, Start("127.0.0.1:0"));
  const std::string page = Get(*endpoint, "/page");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nContent-Type: text/html\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nContent-Security-Policy: default-src 'none'\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\n\r\n<p>"));
  EXPECT_THAT(Get(*endpoint, "/plain"), HasSubstr("\r\n\r\n{}"));
  EXPECT_THAT(Ask(*endpoint, "POST /page HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(MetricsEndpointTest, TellsWhetherItIsReadyAndWhyNot) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto endpoint, Start("127.0.0.1:0"));
  EXPECT_THAT(Get(*endpoint, "/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get(*endpoint, "/readyz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  not_ready_ = "draining";
  EXPECT_THAT(Get(*endpoint, "/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string answer = Get(*endpoint, "/readyz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\ndraining\n"));
}

TEST_F(MetricsEndpointTest, MalformedRequestsAreRefusedAndItServesOn) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto endpoint, Start("127.0.0.1:0"));
  for (const std::string& request :
       {std::string("nonsense\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        "GET " + std::string(20'000, '%') + " HTTP/1.1\r\n\r\n"}) {
    EXPECT_THAT(Ask(*endpoint, request),
                ::testing::AnyOf("", StartsWith("HTTP/1.1 4"), StartsWith("HTTP/1.1 505 ")))
        << request.substr(0, 20);
  }
  EXPECT_THAT(Get(*endpoint, "/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(MetricsEndpointTest, APortInUseIsNamed) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto first, Start("127.0.0.1:0"));
  EXPECT_THAT(Start(first->address()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "",
                       "cannot serve metrics on " + first->address() + ": Address already in use"));
}

TEST_F(MetricsEndpointTest, APortIsFreeAgainAfterTheEnd) {
  std::string address;
  {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto first, Start("127.0.0.1:0"));
    address = first->address();
    Get(*first, "/metrics");
  }
  EXPECT_THAT(Start(address), testing::IsOk());
}

TEST_F(MetricsEndpointTest, AnAddressThatIsNotOursIsRefused) {
  EXPECT_THAT(Start("192.0.2.1:0"), StatusIs(absl::StatusCode::kAlreadyExists, "", "192.0.2.1:0",
                                             "Cannot assign requested address"));
}

TEST_F(MetricsEndpointTest, MalformedAddressesAreRefused) {
  for (const char* address :
       {"", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:80s",
        "127.0.0.1:-1", "127.0.0.1:1,127.0.0.1:2", "::1:80"}) {
    EXPECT_THAT(Start(address), StatusIs(absl::StatusCode::kInvalidArgument, "", "host:port",
                                         absl::StrFormat("got \"%s\"", address)));
  }
}

}  // namespace
}  // namespace sparsefw::server
