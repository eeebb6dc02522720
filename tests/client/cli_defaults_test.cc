// What a command line means where it leaves something out, and what it says of wrong values.
#include <gmock/gmock.h>

#include "client/cpp/cli/exit_code.h"
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

// The message of the error with exit code 2; empty where there is none.
std::string RefusalOf(std::vector<std::string> words) {
  words.insert(words.begin(), "sparsefw-cli");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto command = ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  if (ExitCodeOf(command.status()) != ExitCode::kUsage) return "";
  return std::string(command.status().message());
}

std::string RefusalOfSubmit(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"submit", "--weights", "w", "--gram", "g", "--out", "m"};
  words.insert(words.end(), more.begin(), more.end());
  return RefusalOf(words);
}

TEST(ValuesTest, TheNextFlagIsNotTheValueOfTheOneBeforeIt) {
  EXPECT_EQ(RefusalOfSubmit({"--alpha", "--sparsity", "0.6"}),
            "--alpha must have a value (SHARE); got the flag --sparsity");
  EXPECT_EQ(RefusalOfSubmit({"--sparsity", "--json"}),
            "--sparsity must have a value (SHARE); got the flag --json");
  EXPECT_EQ(RefusalOfSubmit({"--activations", "--alpha=0.5"}),
            "--activations must have a value (FILE[:TENSOR]); got the flag --alpha=0.5");
  EXPECT_EQ(RefusalOfSubmit({"--sparsity", "0.6", "--alpha"}),
            "--alpha must have a value (SHARE); got none");
  EXPECT_EQ(RefusalOf({"list", "--limit="}), "--limit must have a value (N); got none");
  // A value may begin with a hyphen.
  EXPECT_EQ(RefusalOfSubmit({"--sparsity", "0.6", "--priority", "-5", "--label", "--x=1"}), "");
}

TEST(ValuesTest, AFlagOfOneValueIsGivenOnce) {
  EXPECT_EQ(RefusalOfSubmit({"--sparsity", "0.6", "--alpha", "0.1", "--alpha=0.2"}),
            "--alpha must be given at most once; got \"0.1\" and \"0.2\"");
  EXPECT_EQ(RefusalOf({"list", "--state", "running", "--state", "queued", "--json", "--json"}), "");
}

TEST(ValuesTest, NumbersAndTimesSayTheirRule) {
  for (const char* limit : {"x", "-1", "1.5"}) {
    EXPECT_EQ(RefusalOf({"list", "--limit", limit}),
              "--limit must be a whole number of at least 0; got \"" + std::string(limit) + "\"");
  }
  EXPECT_THAT(RefusalOfSubmit({"--sparsity", "0.6", "--deadline", "0s"}),
              ::testing::StartsWith("--deadline must be a time span above 0 such as"));
  for (const char* flag : {"--timeout", "--retry-for"}) {
    EXPECT_THAT(RefusalOf({"info", flag, "0s"}), ::testing::HasSubstr("above 0"));
  }
}

}  // namespace
}  // namespace sparsefw::cli
