// Every option out of range.
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::StatusIs;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct BadOption {
  std::string name;
  void (*spoil)(SolveOptions&);
  std::string rule;
  std::string value;
};

class BadOptionTest : public ::testing::TestWithParam<BadOption> {};

TEST_P(BadOptionTest, IsNamedWithItsRuleAndValue) {
  SolveOptions options;
  SPARSEFW_ASSERT_OK(ValidateOptions(options));
  GetParam().spoil(options);
  EXPECT_THAT(ValidateOptions(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", GetParam().rule,
                       GetParam().value));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadOptionTest,
    ::testing::Values(
        BadOption{"AlphaBelow0", [](SolveOptions& o) { o.alpha = -0.1; }, "alpha must be in [0, 1]",
                  "alpha=-0.1"},
        BadOption{"AlphaAbove1", [](SolveOptions& o) { o.alpha = 1.5; }, "alpha must be in [0, 1]",
                  "alpha=1.5"},
        BadOption{"AlphaNan", [](SolveOptions& o) { o.alpha = kNan; }, "alpha must be in [0, 1]",
                  "alpha=nan"},
        BadOption{"NegativeShrinkage", [](SolveOptions& o) { o.shrinkage = -0.25; },
                  "shrinkage must be in [0, 1)", "shrinkage=-0.25"},
        BadOption{"NothingLeftOfG", [](SolveOptions& o) { o.shrinkage = 1; },
                  "shrinkage must be in [0, 1)", "shrinkage=1"},
        BadOption{"NanShrinkage", [](SolveOptions& o) { o.shrinkage = kNan; },
                  "shrinkage must be in [0, 1)", "shrinkage=nan"},
        BadOption{"NoIterations", [](SolveOptions& o) { o.iterations = 0; },
                  "iterations must be at least 1", "iterations=0"},
        BadOption{"NegativeIterations", [](SolveOptions& o) { o.iterations = -5; },
                  "iterations must be at least 1", "iterations=-5"},
        BadOption{"NoReports", [](SolveOptions& o) { o.report_every = 0; },
                  "report_every must be at least 1", "report_every=0"},
        BadOption{"NegativeThreads", [](SolveOptions& o) { o.threads = -2; },
                  "threads must be in [0, 1024]", "threads=-2"},
        BadOption{"NegativeGap", [](SolveOptions& o) { o.rel_gap = -1e-3; },
                  "rel_gap must be finite and at least 0", "rel_gap=-0.001"},
        BadOption{"NanGap", [](SolveOptions& o) { o.rel_gap = kNan; },
                  "rel_gap must be finite and at least 0", "rel_gap=nan"},
        BadOption{"InfiniteGap", [](SolveOptions& o) { o.rel_gap = kInfinity; },
                  "rel_gap must be finite and at least 0", "rel_gap=inf"},
        BadOption{"NegativeDamping", [](SolveOptions& o) { o.sparsegpt.damping = -1; },
                  "damping must be in [0, 1]", "damping=-1"},
        BadOption{"DampingAbove1", [](SolveOptions& o) { o.sparsegpt.damping = 2; },
                  "damping must be in [0, 1]", "damping=2"},
        BadOption{"NanDamping", [](SolveOptions& o) { o.sparsegpt.damping = kNan; },
                  "damping must be in [0, 1]", "damping=nan"},
        BadOption{"NoBlock", [](SolveOptions& o) { o.sparsegpt.block = 0; },
                  "block_size must be at least 1", "block_size=0"},
        BadOption{"NegativeExponent", [](SolveOptions& o) { o.warm_start.ria_exponent = -1; },
                  "ria_exponent must be finite and at least 0", "ria_exponent=-1"},
        BadOption{"NanExponent", [](SolveOptions& o) { o.warm_start.ria_exponent = kNan; },
                  "ria_exponent must be finite and at least 0", "ria_exponent=nan"}),
    [](const auto& test) { return test.param.name; });

TEST(ValidateOptionsTest, AcceptsTheLimitsThemselves) {
  SPARSEFW_EXPECT_OK(ValidateOptions({.alpha = 0, .iterations = 1, .report_every = 1}));
  SPARSEFW_EXPECT_OK(ValidateOptions({.swaps = true, .keep_fixed = false, .reconstruct = true}));
  SPARSEFW_EXPECT_OK(
      ValidateOptions({.method = Method::kSparseGpt, .sparsegpt = {.damping = 0, .block = 1}}));
  SPARSEFW_EXPECT_OK(ValidateOptions({.sparsegpt = {.damping = 1, .block = int64_t{1} << 40}}));
  SPARSEFW_EXPECT_OK(ValidateOptions({.alpha = 1, .report_every = 1'000'000'000'000}));
}

TEST(ValidateOptionsTest, SparseGptTakesNoSwaps) {
  EXPECT_THAT(ValidateOptions({.method = Method::kSparseGpt, .swaps = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "swaps must be off"));
  SPARSEFW_EXPECT_OK(ValidateOptions({.method = Method::kSparseGpt, .reconstruct = true}));
}

}  // namespace
}  // namespace sparsefw
