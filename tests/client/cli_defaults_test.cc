// What a command line means where it leaves something out.
#include <gtest/gtest.h>

#include "client/cpp/cli/flags/options.h"

namespace sparsefw::cli {
namespace {

template <typename Options>
Options MustParse(std::vector<std::string> args) {
  args.insert(args.begin(), "sparsefw-cli");
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  const auto command = ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  EXPECT_TRUE(command.ok()) << command.status();
  if (!command.ok() || !std::holds_alternative<Options>(*command)) return Options();
  return std::get<Options>(*command);
}

TEST(CliDefaultsTest, TheFirstConnectionIsWaitedForNoLongerThanABrokenOne) {
  const auto timeout = [](std::vector<std::string> args) {
    args.insert(args.begin(), "info");
    return MustParse<InfoOptions>(args).common.timeout;
  };
  EXPECT_EQ(timeout({}), absl::Seconds(5));
  EXPECT_EQ(timeout({"--retry-for", "2s"}), absl::Seconds(2));
  EXPECT_EQ(timeout({"--retry-for", "9s"}), absl::Seconds(5));
  EXPECT_EQ(timeout({"--retry-for", "2s", "--timeout", "3s"}), absl::Seconds(3));
}

TEST(CliDefaultsTest, PatternIsPerRow) {
  const auto submit = MustParse<SubmitOptions>(
      {"submit", "--weights", "w", "--gram", "g", "--sparsity", "0.6", "--out", "m"});
  EXPECT_DOUBLE_EQ(submit.spec.pattern().per_row().sparsity(), 0.6);
  const auto sweep = MustParse<SubmitOptions>(
      {"submit", "--weights", "w", "--gram", "g", "--sweep", "sparsity=0.5,0.6", "--out", "m"});
  EXPECT_DOUBLE_EQ(sweep.spec.sweep().points(1).pattern().per_row().sparsity(), 0.6);
}

}  // namespace
}  // namespace sparsefw::cli
