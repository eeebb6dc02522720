#include <set>
#include <string>

#include "gtest/gtest.h"
#include "sparsefw/client/client.h"
#include "sparsefw/client/options.h"
#include "tests/client/client_fixture.h"

namespace sparsefw::client::testing {
namespace {

using sparsefw::testing::IsOk;
using sparsefw::testing::StatusIs;

const std::string kGiven = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceTest, NewOnesDifferAndAreValid) {
  std::set<std::string> made;
  for (int i = 0; i < 100; ++i) {
    const std::string one = NewTraceparent();
    EXPECT_TRUE(IsTraceparent(one)) << one;
    EXPECT_TRUE(one.ends_with("-00")) << "not sampled";
    made.insert(one);
  }
  EXPECT_EQ(made.size(), 100U);
}

TEST(TraceTest, AClientRefusesOneThatIsNone) {
  const FakeServer server;
  ClientOptions options = FastOptions();
  options.traceparent = kGiven;
  EXPECT_THAT(Client::Connect(server.address(), options), IsOk());
  options.traceparent = "a\nb";
  EXPECT_THAT(Client::Connect(server.address(), options),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "traceparent"));
}

}  // namespace
}  // namespace sparsefw::client::testing
