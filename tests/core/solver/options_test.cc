// The list of options, and what a request means.
#include "sparsefw/options.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "core/src/base/number_text.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

TEST(OptionsTest, NamesAreUniqueAndDefaultsAreInTheirRanges) {
  std::set<std::string_view> names;
  std::set<std::string_view> paths;
  ForEachOption([&](const OptionInfo& info, auto get) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(info.path.empty() || paths.insert(info.path).second) << info.path;
    const SolveOptions options;
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(get(options))>>) {
      EXPECT_TRUE(IsIn(info.range, static_cast<double>(get(options)))) << info.name;
    }
  });
  EXPECT_GT(paths.size(), 10u);
}

// A member that is added does not compile until it is counted here, and is in the list then.
TEST(OptionsTest, EveryMemberIsInTheList) {
  const SolveOptions options;
  const auto& [method, warm_start, shrinkage, alpha, iterations, step_rule, rel_gap, report_every,
               swaps, keep_fixed, reconstruct, joint, joint_options, sparsegpt, measure_new_weights,
               deadline, threads, product_precision] = options;
  const auto& [warm_method, ria_exponent] = warm_start;
  const auto& [joint_damping, excluded] = joint_options;
  const auto& [damping, block] = sparsegpt;
  const std::set<const void*> members = {
      &method,     &warm_method, &ria_exponent, &shrinkage,           &alpha,
      &iterations, &step_rule,   &rel_gap,      &report_every,        &swaps,
      &keep_fixed, &reconstruct, &joint,        &joint_damping,       &excluded,
      &damping,    &block,       &threads,      &measure_new_weights, &product_precision};
  std::set<const void*> listed;
  ForEachOption([&](const OptionInfo&, auto get) { listed.insert(&get(options)); });
  EXPECT_EQ(listed, members);
  static_cast<void>(deadline);  // of a call, not of its result
}

std::string ValueText(bool value) { return value ? "true" : "false"; }
std::string ValueText(double value) { return NumberText(value); }
std::string ValueText(int64_t value) { return std::to_string(value); }
std::string ValueText(int value) { return std::to_string(value); }
template <typename Enum>
requires std::is_enum_v<Enum> std::string ValueText(Enum value) {
  return std::string(NameOf(value));
}

template <typename Value>
std::string ValuesText(OptionRange range) {
  if constexpr (std::is_enum_v<Value>) {
    std::string text;
    for (int value = 0; NameOf(static_cast<Value>(value)) != "other"; ++value) {
      text += (text.empty() ? "" : ", ") + ValueText(static_cast<Value>(value));
    }
    return text;
  }
  return std::is_same_v<Value, bool> ? "true, false" : std::string(RuleOf(range));
}

// The rows of the table in docs/api.md.
std::string TableOfOptions() {
  std::string text = "| field of `JobSpec` | values | default |\n|---|---|---|\n";
  ForEachOption([&](const OptionInfo& info, auto get) {
    const SolveOptions options;
    using Value = std::remove_cvref_t<decltype(get(options))>;
    if (info.path.empty()) return;
    text += "| `" + std::string(info.path) + "` | " + ValuesText<Value>(info.range) + " | " +
            ValueText(get(options)) + " |\n";
  });
  return text;
}

// SPARSEFW_WRITE_PAGES=1 writes it.
TEST(OptionsTest, ThePageHasTheTable) {
  const std::string path = std::string(SPARSEFW_SOURCE_DIR) + "/docs/api.md";
  std::ifstream in(path);
  std::stringstream read;
  read << in.rdbuf();
  std::string page = read.str();
  const std::string begin = "<!-- options:begin -->\n";
  const size_t from = page.find(begin);
  const size_t to = page.find("<!-- options:end -->");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const size_t first = from + begin.size();
  if (std::getenv("SPARSEFW_WRITE_PAGES") != nullptr) {
    page.replace(first, to - first, TableOfOptions());
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(page.substr(first, to - first), TableOfOptions());
}

SolveOptions Resolved(OptionRequest request, const Pattern& pattern = Pattern::PerRow(0.5)) {
  return ResolveOptions(request, pattern);
}

void ExpectEqual(const SolveOptions& options, const SolveOptions& expected) {
  ForEachOption([&](const OptionInfo& info, auto get) {
    EXPECT_TRUE(get(options) == get(expected)) << info.name;
  });
}

TEST(ResolveTest, NothingAskedForIsBalanced) {
  EXPECT_EQ(PresetOf({}), Preset::kBalanced);
  ExpectEqual(Resolved({}), Resolved({.preset = Preset::kBalanced}));
  EXPECT_TRUE(ShrinksByTokens({}));
  // What belongs to no method changes nothing of that.
  OptionRequest request;
  request.options.threads = 2;
  request.given = {"threads", "product_precision", "measure_new_weights", "deadline", "no option"};
  EXPECT_EQ(PresetOf(request), Preset::kBalanced);
  EXPECT_EQ(Resolved(request).threads, 2);
}

TEST(ResolveTest, AMethodOrAnOptionOfOneIsFilledUpWithTheDefaults) {
  ForEachOption([](const OptionInfo& info, auto) {
    const bool of_none = info.name == "threads" || info.name == "product_precision" ||
                         info.name == "measure_new_weights";
    OptionRequest request;
    request.given = {info.name};
    EXPECT_EQ(PresetOf(request), of_none ? Preset::kBalanced : Preset::kPaper) << info.name;
  });
  OptionRequest request;
  request.options.method = Method::kSparseFw;
  request.given = {"method"};
  ExpectEqual(Resolved(request), SolveOptions());
  EXPECT_FALSE(ShrinksByTokens(request));
  request.preset = Preset::kFast;
  EXPECT_EQ(PresetOf(request), Preset::kFast);
}

TEST(ResolveTest, OnlyWhatIsGivenCounts) {
  OptionRequest request;
  request.options.alpha = 0.25;
  request.options.iterations = 7;
  request.options.deadline = absl::UnixEpoch();
  request.given = {"iterations"};
  const SolveOptions options = Resolved(request);
  EXPECT_EQ(options.alpha, 0.9);
  EXPECT_EQ(options.iterations, 7);
  EXPECT_EQ(options.deadline, absl::UnixEpoch());
}

TEST(ResolveTest, APresetGivesWay) {
  OptionRequest request = {.preset = Preset::kBalanced};
  EXPECT_TRUE(Resolved(request).swaps);
  request.options.method = Method::kAlps;
  request.given = {"method"};
  EXPECT_FALSE(Resolved(request).swaps) << "ALPS has weights of its own";
  SPARSEFW_EXPECT_OK(ValidateOptions(Resolved(request)));
  request.options.swaps = true;
  request.given.insert("swaps");
  EXPECT_TRUE(Resolved(request).swaps) << "what is asked for stays, and is refused";

  request = {.preset = Preset::kBest};
  EXPECT_TRUE(Resolved(request).joint);
  request.options.reconstruct = true;
  request.given = {"reconstruct"};
  EXPECT_FALSE(Resolved(request).joint);
}

TEST(ResolveTest, TheShrinkageOfPresetsFollowsFromTheTokens) {
  for (const Preset preset : {Preset::kBalanced, Preset::kBest}) {
    OptionRequest request = {.preset = preset, .inputs = 1000, .tokens = 50'000};
    EXPECT_TRUE(ShrinksByTokens(request));
    EXPECT_DOUBLE_EQ(Resolved(request).shrinkage, kShrinkagePerInput * 0.02);
    request.tokens = 100;
    EXPECT_EQ(Resolved(request).shrinkage, kShrinkageOfSingular);
    request.tokens = 1000;
    EXPECT_EQ(Resolved(request).shrinkage, kUsualShrinkage);
    request.tokens = 0;
    EXPECT_EQ(Resolved(request).shrinkage, kUsualShrinkage) << "not known";
    request.options.shrinkage = 0;
    request.given = {"shrinkage"};
    EXPECT_EQ(Resolved(request).shrinkage, 0);
    EXPECT_FALSE(ShrinksByTokens(request));
  }
  EXPECT_FALSE(ShrinksByTokens({.preset = Preset::kFast}));
  EXPECT_LT(ShrinkageFor(100, 10'000), ShrinkageFor(500, 10'000));
  EXPECT_GT(ShrinkageFor(1, int64_t{1} << 62), 0);
}

TEST(ResolveTest, TheWindowOfTheJointSearch) {
  OptionRequest request;
  request.options.joint = true;
  request.given = {"joint"};
  const Pattern row = Pattern::PerRow(0.5);
  const Pattern group = Pattern::KeepOfGroup(2, 4);
  EXPECT_EQ(Resolved(request, row).alpha, JointAlpha(row));
  EXPECT_EQ(Resolved(request, group).alpha, JointAlpha(group));
  EXPECT_NE(JointAlpha(row), JointAlpha(group));
  EXPECT_EQ(Resolved(request, row).joint_options.excluded, JointExcluded(row, JointAlpha(row)));
  request.options.keep_fixed = false;
  request.given.insert("keep_fixed");
  EXPECT_EQ(Resolved(request, row).joint_options.excluded, JointExcluded(row, 0));
  request.options.joint_options.excluded = 0.125;
  request.given.insert("joint_excluded");
  EXPECT_EQ(Resolved(request, row).joint_options.excluded, 0.125);
}

}  // namespace
}  // namespace sparsefw
