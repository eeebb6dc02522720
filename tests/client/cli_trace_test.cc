#include <string>
#include <utility>

#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/trace.h"
#include "gtest/gtest.h"
#include "sparsefw/client/options.h"
#include "sparsefw/reason.h"

namespace sparsefw::cli {
namespace {

TEST(TraceTest, IsOfTheEnvironmentWhereThatHasOne) {
  const std::string given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  EXPECT_EQ(TraceparentFor(given), given);
  for (const std::string& none : {std::string(), std::string("00-x"), given + "0",
                                  "00-" + std::string(32, '0') + given.substr(35)}) {
    const std::string made = TraceparentFor(none);
    EXPECT_TRUE(client::IsTraceparent(made)) << made;
    EXPECT_NE(made, TraceparentFor(none));
  }
}

TEST(TraceTest, MarksErrorsOfTheServer) {
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const auto note = [&trace](absl::Status status) {
    return TraceNote(WithTrace(std::move(status), trace));
  };
  const std::string expected = " [trace 4bf92f3577b34da6a3ce929d0e0e4736]";
  EXPECT_EQ(note(absl::NotFoundError("no such job")), expected);
  EXPECT_EQ(note(absl::UnauthenticatedError("who?")), expected);
  EXPECT_EQ(note(UsageError("--no")), "");
  EXPECT_EQ(note(WithReason(absl::UnavailableError("nobody"), "UNREACHABLE")), "");
  EXPECT_EQ(note(absl::OkStatus()), "");
}

}  // namespace
}  // namespace sparsefw::cli
