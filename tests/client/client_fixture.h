// A client of a fake server, with waits short enough for tests.
#ifndef SPARSEFW_TESTS_CLIENT_CLIENT_FIXTURE_H_
#define SPARSEFW_TESTS_CLIENT_CLIENT_FIXTURE_H_

#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "sparsefw/client/client.h"
#include "tests/client/fake_server.h"
#include "tests/testing/hang.h"
#include "tests/testing/matchers.h"

namespace sparsefw::client::testing {

inline ClientOptions FastOptions() {
  ClientOptions options;
  options.retry.initial_backoff = absl::Milliseconds(1);
  options.retry.max_backoff = absl::Milliseconds(4);
  options.retry.give_up_after = absl::FromChrono(kHang);
  options.connect_timeout = absl::FromChrono(kHang);
  options.chunk_bytes = 1000;
  options.owner = "tests";
  return options;
}

// How a broken connection ends a stream.
inline const grpc::Status kBroken(grpc::UNAVAILABLE, "Socket closed");

// An event about jobs/7.
inline v1::JobEvent Event(v1::JobEvent::Kind kind, v1::JobState state, int64_t revision) {
  v1::JobEvent event;
  event.set_kind(kind);
  event.mutable_job()->set_name("jobs/7");
  event.mutable_job()->set_state(state);
  event.mutable_job()->set_revision(revision);
  return event;
}

class ClientTest : public ::testing::Test {
 protected:
  void Connect(ClientOptions options = FastOptions()) {
    auto client = Client::Connect(server_.address(), std::move(options));
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void SetUp() override { Connect(); }

  // What no call takes on this machine, as busy as it is.
  absl::Duration LongForACall() {
    const absl::Time begin = absl::Now();
    EXPECT_EQ(client_->GetJob("jobs/none").status().code(), absl::StatusCode::kNotFound);
    return absl::Milliseconds(200) + 50 * absl::Ceil(absl::Now() - begin, absl::Milliseconds(1));
  }
  static std::string RandomBytes(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }
  static std::span<const std::byte> View(const std::string& bytes) {
    return std::as_bytes(std::span(bytes));
  }

  FakeServer server_;
  std::unique_ptr<Client> client_;
};

}  // namespace sparsefw::client::testing

#endif  // SPARSEFW_TESTS_CLIENT_CLIENT_FIXTURE_H_
