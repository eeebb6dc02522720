// The command line: every flag, and every way to get it wrong.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <sstream>

#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/flags/options.h"
#include "client/cpp/cli/inputs.h"
#include "tests/testing/matchers.h"

namespace sparsefw::cli {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<Command> ParseArgs(std::vector<std::string> args) {
  args.insert(args.begin(), "sparsefw-cli");
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
}

std::vector<std::string> Submit(const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"submit", "--weights", "w.safetensors", "--gram",
                                   "g",      "--pattern", "per-row",       "--sparsity",
                                   "0.6",    "--out",     "mask"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

SubmitOptions MustSubmit(const std::vector<std::string>& args) {
  const auto command = ParseArgs(args);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.ok() ? std::get<SubmitOptions>(*command) : SubmitOptions();
}

class CliParseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"SPARSEFW_SERVER", "SPARSEFW_TOKEN", "SPARSEFW_TLS_CA"}) {
      unsetenv(name);
    }
  }
};

TEST_F(CliParseTest, DefaultsAreLeftToTheServer) {
  const SubmitOptions submit = MustSubmit(Submit());
  EXPECT_EQ(submit.common.server, "127.0.0.1:50051");
  EXPECT_EQ(submit.weights, "w.safetensors");
  EXPECT_EQ(submit.output.out, "mask");
  EXPECT_EQ(submit.spec.method(), v1::METHOD_UNSPECIFIED);
  EXPECT_DOUBLE_EQ(submit.spec.pattern().per_row().sparsity(), 0.6);
  EXPECT_FALSE(submit.spec.sparsefw().has_alpha());
  EXPECT_FALSE(submit.spec.sparsefw().has_iterations());
  EXPECT_FALSE(submit.spec.has_deadline());
  EXPECT_FALSE(submit.spec.has_warm_start());
  EXPECT_FALSE(submit.spec.return_pruned_weight());
  EXPECT_EQ(submit.spec.product_precision(), v1::PRODUCT_PRECISION_UNSPECIFIED);
  EXPECT_FALSE(submit.detach);
}

TEST_F(CliParseTest, EveryFlagOfSubmitReachesTheSpec) {
  const SubmitOptions submit = MustSubmit(Submit({"--method",
                                                  "ria",
                                                  "--warm-start",
                                                  "magnitude",
                                                  "--alpha",
                                                  "0.25",
                                                  "--iterations",
                                                  "300",
                                                  "--step-rule",
                                                  "line-search",
                                                  "--rel-gap",
                                                  "1e-3",
                                                  "--swaps",
                                                  "--no-keep-fixed",
                                                  "--reconstruct",
                                                  "--damping",
                                                  "0.02",
                                                  "--block-size",
                                                  "64",
                                                  "--report-every",
                                                  "7",
                                                  "--deadline",
                                                  "1m30s",
                                                  "--out-weights",
                                                  "pruned",
                                                  "--json",
                                                  "--server",
                                                  "h:1",
                                                  "--timeout",
                                                  "2s",
                                                  "--retry-for",
                                                  "9s",
                                                  "--device",
                                                  "cpu",
                                                  "--precision",
                                                  "tf32",
                                                  "--priority",
                                                  "-3",
                                                  "--label",
                                                  "a=b=c",
                                                  "--label",
                                                  "d=",
                                                  "--ria-exponent",
                                                  "0.75",
                                                  "--keep-tensors"}));
  const v1::JobSpec& spec = submit.spec;
  EXPECT_EQ(spec.method(), v1::METHOD_RIA);
  EXPECT_EQ(spec.warm_start().method(), v1::METHOD_MAGNITUDE);
  EXPECT_DOUBLE_EQ(spec.warm_start().ria_exponent(), 0.75);
  EXPECT_DOUBLE_EQ(spec.sparsefw().alpha(), 0.25);
  EXPECT_EQ(spec.sparsefw().iterations(), 300);
  EXPECT_EQ(spec.sparsefw().step_rule(), v1::STEP_RULE_LINE_SEARCH);
  EXPECT_DOUBLE_EQ(spec.sparsefw().rel_gap(), 1e-3);
  EXPECT_EQ(spec.sparsefw().report_every(), 7);
  EXPECT_TRUE(spec.refine().swaps());
  EXPECT_TRUE(spec.refine().has_keep_fixed());
  EXPECT_FALSE(spec.refine().keep_fixed());
  EXPECT_TRUE(spec.reconstruct());
  EXPECT_DOUBLE_EQ(spec.sparsegpt().damping(), 0.02);
  EXPECT_EQ(spec.sparsegpt().block_size(), 64);
  EXPECT_FALSE(spec.has_sweep());
  EXPECT_EQ(spec.deadline().seconds(), 90);
  EXPECT_EQ(spec.device(), "cpu");
  EXPECT_EQ(spec.product_precision(), v1::PRODUCT_PRECISION_TF32);
  EXPECT_EQ(spec.priority(), -3);
  EXPECT_EQ(spec.labels().at("a"), "b=c");
  EXPECT_EQ(spec.labels().at("d"), "");
  EXPECT_TRUE(spec.return_pruned_weight());
  EXPECT_EQ(submit.output.out_weights, "pruned");
  EXPECT_TRUE(submit.output.keep_tensors);
  EXPECT_TRUE(submit.common.json);
  EXPECT_EQ(submit.common.server, "h:1");
  EXPECT_EQ(submit.common.timeout, absl::Seconds(2));
  EXPECT_EQ(submit.common.retry_for, absl::Seconds(9));
}

TEST_F(CliParseTest, Credentials) {
  const auto common = [](const std::vector<std::string>& args) {
    const auto command = ParseArgs(args);
    EXPECT_TRUE(command.ok()) << command.status();
    return command.ok() ? std::get<InfoOptions>(*command).common : CommonOptions();
  };
  EXPECT_EQ(common({"info"}).tls_ca + common({"info"}).token, "");
  setenv("SPARSEFW_TOKEN", "secret", 1);
  setenv("SPARSEFW_TLS_CA", "ca", 1);
  EXPECT_EQ(common({"info"}).token, "secret");
  EXPECT_EQ(common({"info"}).tls_ca, "ca");
  const CommonOptions flags = common(
      {"info", "--tls-ca", "other", "--tls-cert", "c", "--tls-key", "k", "--token-file", "f"});
  EXPECT_EQ(flags.tls_ca, "other");
  EXPECT_EQ(flags.tls_cert, "c");
  EXPECT_EQ(flags.tls_key, "k");
  EXPECT_EQ(flags.token_file, "f");
  EXPECT_EQ(flags.token, "") << "the flag wins";
  EXPECT_THAT(ParseArgs({"info", "--tls-cert", "c"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "", "--tls-cert and --tls-key"));
  EXPECT_THAT(ParseArgs({"info", "--tls-key", "k"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "", "--tls-cert and --tls-key"));
  unsetenv("SPARSEFW_TOKEN");
  unsetenv("SPARSEFW_TLS_CA");
}

TEST_F(CliParseTest, SweepsAreEveryCombinationTheLastKeyFastest) {
  const SubmitOptions submit = MustSubmit(
      Submit({"--sweep", "sparsity=0.5,0.7", "--sweep", "alpha=0,0.25,1", "--keep-all"}));
  const v1::Sweep& sweep = submit.spec.sweep();
  ASSERT_EQ(sweep.points_size(), 6);
  EXPECT_EQ(sweep.keep(), v1::Sweep::KEEP_ALL);
  const std::vector<double> alphas = {0, 0.25, 1};
  for (int i = 0; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(sweep.points(i).pattern().per_row().sparsity(), i < 3 ? 0.5 : 0.7);
    EXPECT_DOUBLE_EQ(sweep.points(i).alpha(), alphas[static_cast<size_t>(i % 3)]);
    EXPECT_FALSE(sweep.points(i).has_swaps()) << "the job's own";
  }
}

TEST_F(CliParseTest, ASweepHasAtMost256Points) {
  std::string alphas = "alpha=0";
  for (int i = 0; i < 128; ++i) alphas += ",0.5";
  EXPECT_THAT(ParseArgs(Submit({"--sweep", alphas, "--sweep", "swaps=on,off"})),
              StatusIs(absl::StatusCode::kInvalidArgument, "", "at most 256", "258"));
}

TEST_F(CliParseTest, DetachKeepsThePrunedWeightForALaterFetch) {
  const SubmitOptions submit = MustSubmit({"submit", "--weights", "w", "--activations", "x",
                                           "--pattern", "2:4", "--warm-mask", "m", "--detach"});
  EXPECT_TRUE(submit.detach);
  EXPECT_TRUE(submit.spec.return_pruned_weight());
  EXPECT_EQ(submit.warm_mask, "m");
  EXPECT_EQ(submit.spec.pattern().nm().keep(), 2);
}

TEST_F(CliParseTest, MaskOnlyMakesNoPrunedWeight) {
  const SubmitOptions submit =
      MustSubmit({"submit", "--weights", "tensors/1", "--gram", "tensors/2", "--pattern", "2:4",
                  "--detach", "--mask-only"});
  EXPECT_FALSE(submit.spec.return_pruned_weight());
  EXPECT_EQ(submit.weights, "tensors/1");
}

TEST_F(CliParseTest, TheServerComesFromTheEnvironmentUnlessAFlagSaysOtherwise) {
  setenv("SPARSEFW_SERVER", "elsewhere:7", 1);
  EXPECT_EQ(MustSubmit(Submit()).common.server, "elsewhere:7");
  EXPECT_EQ(MustSubmit(Submit({"--server", "here:1"})).common.server, "here:1");
  const auto info = ParseArgs({"info"});
  SPARSEFW_ASSERT_OK(info);
  EXPECT_EQ(std::get<InfoOptions>(*info).common.server, "elsewhere:7");
}

TEST_F(CliParseTest, JobCommandsTakeBareIds) {
  const auto watch = ParseArgs({"watch", "abc"});
  SPARSEFW_ASSERT_OK(watch);
  EXPECT_EQ(std::get<WatchOptions>(*watch).job, "jobs/abc");
  const auto cancel = ParseArgs({"cancel", "jobs/abc"});
  SPARSEFW_ASSERT_OK(cancel);
  EXPECT_EQ(std::get<CancelOptions>(*cancel).job, "jobs/abc");
  const auto fetch = ParseArgs({"fetch", "7", "--out", "m", "--out-weights", "w", "--json"});
  SPARSEFW_ASSERT_OK(fetch);
  EXPECT_EQ(std::get<FetchOptions>(*fetch).output.out_weights, "w");
  EXPECT_TRUE(std::holds_alternative<StatusOptions>(*ParseArgs({"status", "7"})));
  EXPECT_TRUE(std::holds_alternative<DeleteOptions>(*ParseArgs({"delete", "7"})));
}

TEST_F(CliParseTest, ListAndGram) {
  const auto list = ParseArgs(
      {"list", "--state", "RUNNING", "--state", "queued", "--label", "k=v", "--limit", "3"});
  SPARSEFW_ASSERT_OK(list);
  const auto& options = std::get<ListOptions>(*list);
  EXPECT_THAT(options.states, ::testing::ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_QUEUED));
  EXPECT_EQ(options.labels.at("k"), "v");
  EXPECT_EQ(options.limit, 3);
  const auto gram = ParseArgs(
      {"gram", "--activations", "x", "y", "--activations", "z:t", "--out", "g", "--dtype", "F64"});
  SPARSEFW_ASSERT_OK(gram);
  EXPECT_THAT(std::get<GramOptions>(*gram).activations, ::testing::ElementsAre("x", "y", "z:t"));
  EXPECT_EQ(std::get<GramOptions>(*gram).dtype, DType::kF64);
}

TEST_F(CliParseTest, HelpHasGroupsExamplesAndShortLines) {
  const std::string submit = std::get<PrintText>(*ParseArgs({"submit", "--help"})).text;
  size_t at = 0;
  for (const char* group : {"\nInputs", "\nMethod:", "\nFrank-Wolfe", "\nRefinement:", "\nSweep:",
                            "\nJob:", "\nOutput:", "\nConnection:", "\nExamples:"}) {
    const size_t found = submit.find(group);
    ASSERT_NE(found, std::string::npos) << group;
    EXPECT_GT(found, at) << group;
    at = found;
  }
  for (const char* command : {"submit", "status", "watch", "fetch", "cancel", "delete", "list",
                              "gram", "info", "--help"}) {
    std::vector<std::string> args = {command};
    if (args[0] != "--help") args.emplace_back("--help");
    std::istringstream lines(std::get<PrintText>(*ParseArgs(args)).text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(CliParseTest, HelpAndVersionAreNoErrors) {
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"--help"}, {"submit", "--help"}, {"fetch", "-h"}, {"--version"}}) {
    const auto command = ParseArgs(args);
    SPARSEFW_ASSERT_OK(command);
    EXPECT_TRUE(std::holds_alternative<PrintText>(*command));
  }
  EXPECT_THAT(std::get<PrintText>(*ParseArgs({"submit", "--help"})).text, HasSubstr("--rel-gap"));
}

struct BadUsage {
  std::string name;
  std::vector<std::string> args;
  std::string words;
};

class CliUsageTest : public ::testing::TestWithParam<BadUsage> {};

TEST_P(CliUsageTest, ExitsWithTwoAndOneSentence) {
  unsetenv("SPARSEFW_SERVER");
  const auto command = ParseArgs(GetParam().args);
  ASSERT_THAT(command, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(ExitCodeOf(command.status()), ExitCode::kUsage);
  const std::string message(command.status().message());
  EXPECT_THAT(message, HasSubstr(GetParam().words));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

std::vector<BadUsage> BadUsages() {
  const std::vector<std::string> no_pattern = {"submit", "--weights", "w", "--gram",
                                               "g",      "--out",     "m"};
  const auto with_pattern = [&](std::vector<std::string> more) {
    more.insert(more.begin(), no_pattern.begin(), no_pattern.end());
    return more;
  };
  return {
      {"Nothing", {}, "a command is required"},
      {"UnknownCommand", {"prune"}, "prune"},
      {"UnknownFlag", Submit({"--sparsty", "1"}),
       "there is no flag --sparsty; is --sparsity meant?"},
      {"UnknownBeforeMissing", {"submit", "--weight", "w"}, "is --weights meant?"},
      {"UnknownWithValue",
       {"gram", "--acts=x"},
       "there is no flag --acts; sparsefw-cli gram --help"},
      {"NoFlag", {"submit", "w.npy"}, "\"w.npy\" belongs to no flag"},
      {"HelpOfNothing", {"help", "prune"}, "there is no command \"prune\""},
      {"NoWeights", {"submit", "--gram", "g", "--pattern", "2:4", "--out", "m"}, "--weights"},
      {"NoPatternNoSparsity", no_pattern, "--sparsity is required with --pattern per-row"},
      {"NoGram", {"submit", "--weights", "w", "--pattern", "2:4", "--out", "m"}, "--gram"},
      {"GramAndActivations", Submit({"--activations", "x"}), "--activations"},
      {"NoOut", {"submit", "--weights", "w", "--gram", "g", "--pattern", "2:4"}, "--out"},
      {"DetachWithOut", Submit({"--detach"}), "--detach"},
      {"MaskOnlyWithoutDetach", Submit({"--mask-only"}), "--mask-only"},
      {"SameOutputs", Submit({"--out-weights", "./mask"}), "--out-weights"},
      {"TwoStarts", Submit({"--warm-start", "ria", "--saliency", "s"}), "--saliency"},
      {"BadPreset", Submit({"--preset", "slow"}),
       "--preset must be one of paper, fast, balanced, "},
      {"BadMethod", Submit({"--method", "obs"}), "--method must be one of"},
      {"BadWarmStart", Submit({"--warm-start", "own"}), "--warm-start"},
      {"BadPrecision", Submit({"--precision", "fp64"}),
       "--precision must be one of fp32, tf32, bf16; got \"fp64\""},
      {"BadStepRule", Submit({"--step-rule", "exact"}), "--step-rule"},
      {"PatternWord", with_pattern({"--pattern", "rows"}), "--pattern must be"},
      {"PatternZero", with_pattern({"--pattern", "0:4"}), "--pattern must be"},
      {"PatternOver", with_pattern({"--pattern", "5:4"}), "\"5:4\""},
      {"PatternHalf", with_pattern({"--pattern", "2:"}), "--pattern must be"},
      {"NoSparsity", with_pattern({"--pattern", "unstructured"}), "--sparsity is required"},
      {"SparsityOver", with_pattern({"--pattern", "per-row", "--sparsity", "60"}),
       "--sparsity must be in [0, 1]; got 60 (60 % is 0.6)"},
      {"SparsityPerCent", with_pattern({"--pattern", "per-row", "--sparsity", "60%"}),
       "--sparsity must be a number in [0, 1]; got \"60%\" (that is 0.6)"},
      {"SparsityNan", with_pattern({"--pattern", "per-row", "--sparsity", "nan"}), "--sparsity"},
      {"SparsityWord", with_pattern({"--pattern", "per-row", "--sparsity", "most"}), "--sparsity"},
      {"SparsityOfGroups", with_pattern({"--pattern", "2:4", "--sparsity", "0.6"}), "0.5"},
      {"IterationsWord", Submit({"--iterations", "many"}),
       "--iterations must be a whole number; got \"many\""},
      {"IterationsHalf", Submit({"--iterations", "0.5"}), "--iterations must be a whole number"},
      {"AlphaWord", Submit({"--alpha", "most"}), "--alpha must be a number; got \"most\""},
      {"SweepKey", Submit({"--sweep", "damping=1"}),
       "--sweep must be over one of sparsity, method"},
      {"SweepPath", Submit({"--sweep", "pattern.nm=1"}), "--sweep must be over one of sparsity"},
      {"SweepSwitch", Submit({"--sweep", "joint=1"}), "--sweep joint must be on or off"},
      {"SweepNumber", Submit({"--sweep", "alpha=a"}), "--sweep alpha must be a number"},
      {"DeadlineUnit", Submit({"--deadline", "60"}), "--deadline"},
      {"DeadlineZero", Submit({"--deadline", "0s"}), "--deadline"},
      {"DeadlineForever", Submit({"--deadline", "inf"}), "--deadline"},
      {"Timeout", Submit({"--timeout", "-1s"}), "--timeout"},
      {"Label", Submit({"--label", "novalue"}), "--label must be KEY=VALUE"},
      {"FetchNoOut", {"fetch", "1"}, "--out"},
      {"WatchNoJob", {"watch"}, "JOB"},
      {"ListState", {"list", "--state", "done"}, "--state"},
      {"ListLimit", {"list", "--limit", "-1"}, "--limit"},
      {"GramDType", {"gram", "--activations", "x", "--out", "g", "--dtype", "F16"}, "--dtype"},
  };
}

INSTANTIATE_TEST_SUITE_P(Flags, CliUsageTest, ::testing::ValuesIn(BadUsages()),
                         [](const auto& test) { return test.param.name; });

TEST(ParseTest, HelpIsACommandToo) {
  EXPECT_EQ(std::get<PrintText>(*ParseArgs({"help", "gram"})).text,
            std::get<PrintText>(*ParseArgs({"gram", "--help"})).text);
  EXPECT_EQ(std::get<PrintText>(*ParseArgs({"help"})).text,
            std::get<PrintText>(*ParseArgs({"--help"})).text);
  EXPECT_TRUE(MustSubmit({"submit", "--weights", "w", "--gram", "g", "--pattern", "per_row",
                          "--sparsity", "0.6", "--out", "m"})
                  .spec.pattern()
                  .has_per_row());
}

TEST(ParseTest, JointAndPresets) {
  const SubmitOptions joint = MustSubmit(Submit(
      {"--joint", "--joint-damping", "0.01", "--joint-excluded", "0.25", "--method", "alps"}));
  EXPECT_EQ(joint.spec.method(), v1::METHOD_ALPS);
  EXPECT_TRUE(joint.spec.refine().joint());
  EXPECT_DOUBLE_EQ(joint.spec.refine().joint_damping(), 0.01);
  EXPECT_DOUBLE_EQ(joint.spec.refine().joint_excluded(), 0.25);
  EXPECT_FALSE(joint.spec.has_reconstruct());
  EXPECT_FALSE(joint.spec.has_shrinkage());
  EXPECT_DOUBLE_EQ(MustSubmit(Submit({"--shrinkage", "0.125"})).spec.shrinkage(), 0.125);
  // Only what is said: the rest is the preset's.
  const SubmitOptions preset = MustSubmit(Submit({"--preset", "balanced", "--alpha", "0.25"}));
  EXPECT_EQ(preset.spec.preset(), v1::PRESET_BALANCED);
  EXPECT_EQ(preset.spec.method(), v1::METHOD_UNSPECIFIED);
  EXPECT_FALSE(preset.spec.refine().has_swaps());
  EXPECT_DOUBLE_EQ(preset.spec.sparsefw().alpha(), 0.25);
  EXPECT_EQ(MustSubmit(Submit({"--preset", "best", "--method", "ria"})).spec.method(),
            v1::METHOD_RIA);
  const SubmitOptions sweep = MustSubmit(Submit({"--sweep", "joint=off,on"}));
  EXPECT_FALSE(sweep.spec.sweep().points(0).joint());
  EXPECT_TRUE(sweep.spec.sweep().points(1).joint());
}

}  // namespace
}  // namespace sparsefw::cli
