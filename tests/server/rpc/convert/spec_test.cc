// JobSpec to and from the wire.
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "server/fields/option_fields.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/options.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

void ExpectSpecRefused(const absl::Status& status, const std::string& reason,
                       const std::string& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(ReasonOf(status), reason);
  EXPECT_NE(std::string(status.message()).find(words), std::string::npos) << status;
}

v1::JobSpec Minimal() {
  v1::JobSpec spec;
  spec.mutable_pattern()->mutable_nm()->set_keep(2);
  spec.mutable_pattern()->mutable_nm()->set_group(4);
  return spec;
}

TEST(ConvertJobTest, NothingNamedIsThePresetBalanced) {
  v1::JobSpec proto = Minimal();
  const auto options = [](const v1::JobSpec& spec) {
    v1::JobSpec resolved = ToProto(*FromProto(spec));
    resolved.clear_preset();
    return resolved.DebugString();
  };
  v1::JobSpec balanced = Minimal();
  balanced.set_preset(v1::PRESET_BALANCED);
  EXPECT_EQ(options(proto), options(balanced));
  EXPECT_EQ(FromProto(proto)->preset, Preset::kBalanced);
  EXPECT_TRUE(FromProto(proto)->shrinks_by_tokens);
  EXPECT_EQ(ToProto(*FromProto(proto)).preset(), v1::PRESET_BALANCED);
  proto.set_product_precision(v1::PRODUCT_PRECISION_TF32);
  proto.mutable_sweep()->add_points()->mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  EXPECT_EQ(FromProto(proto)->preset, Preset::kBalanced);
  EXPECT_EQ(FromProto(proto)->sweep[0].options.iterations, 200);

  // Whatever names a method or an option of one has the defaults of before.
  proto.mutable_sweep()->mutable_points(0)->set_alpha(0);
  EXPECT_EQ(FromProto(proto)->preset, std::nullopt);
  EXPECT_EQ(FromProto(proto)->sweep[0].options.iterations, 2000);
  for (const auto set : {+[](v1::JobSpec* spec) { spec->set_method(v1::METHOD_SPARSEFW); },
                         +[](v1::JobSpec* spec) { spec->mutable_refine()->set_swaps(false); },
                         +[](v1::JobSpec* spec) { spec->set_shrinkage(0); },
                         +[](v1::JobSpec* spec) { spec->mutable_warm_start()->set_mask("t/1"); }}) {
    v1::JobSpec named = Minimal();
    set(&named);
    EXPECT_EQ(FromProto(named)->preset, std::nullopt);
    EXPECT_EQ(FromProto(named)->options.iterations, 2000) << named.DebugString();
    EXPECT_EQ(ToProto(*FromProto(named)).preset(), v1::PRESET_UNSPECIFIED);
  }
}

TEST(ConvertJobTest, UnsetFieldsTakeTheDocumentedDefaults) {
  v1::JobSpec proto = Minimal();
  proto.set_method(v1::METHOD_SPARSEFW);
  const absl::StatusOr<JobSpec> spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->pattern, Pattern::KeepOfGroup(2, 4));
  EXPECT_EQ(spec->options.method, Method::kSparseFw);
  EXPECT_EQ(spec->options.warm_start.method, SaliencyMethod::kWanda);
  EXPECT_EQ(spec->options.warm_start.ria_exponent, 0.5);
  EXPECT_EQ(spec->options.shrinkage, 0);
  EXPECT_EQ(spec->options.alpha, 0.9);
  EXPECT_EQ(spec->options.iterations, 2000);
  EXPECT_EQ(spec->options.step_rule, StepRule::kOpenLoop);
  EXPECT_EQ(spec->options.report_every, 100);
  EXPECT_TRUE(spec->options.keep_fixed);
  EXPECT_EQ(spec->options.product_precision, ProductPrecision::kFloat32);
  EXPECT_EQ(spec->deadline, absl::InfiniteDuration());
  EXPECT_EQ(spec->result_ttl, absl::Hours(24));
}

TEST(ConvertJobTest, EverythingSurvivesTheWayThereAndBack) {
  v1::JobSpec proto = Minimal();
  proto.set_weight("tensors/w");
  proto.set_gram("tensors/g");
  proto.set_method(v1::METHOD_RIA);
  proto.mutable_warm_start()->set_method(v1::METHOD_MAGNITUDE);
  proto.mutable_warm_start()->set_ria_exponent(0.25);
  proto.set_shrinkage(0.375);
  v1::SparseFwOptions& options = *proto.mutable_sparsefw();
  options.set_alpha(0);
  options.set_iterations(7);
  options.set_step_rule(v1::STEP_RULE_LINE_SEARCH);
  options.set_rel_gap(0.125);
  options.set_report_every(3);
  proto.set_reconstruct(true);
  proto.mutable_refine()->set_swaps(true);
  proto.mutable_refine()->set_keep_fixed(false);
  proto.mutable_refine()->set_joint(false);
  proto.mutable_refine()->set_joint_damping(0.25);
  proto.mutable_refine()->set_joint_excluded(0.125);
  proto.mutable_sparsegpt()->set_damping(0.5);
  proto.mutable_sparsegpt()->set_block_size(64);
  v1::SweepPoint& point = *proto.mutable_sweep()->add_points();
  point.set_method(v1::METHOD_WANDA);
  point.mutable_pattern()->mutable_per_row()->set_sparsity(0.25);
  point.set_alpha(0.5);
  point.set_swaps(false);
  point.set_reconstruct(true);
  point.set_joint(true);
  proto.mutable_sweep()->set_keep(v1::Sweep::KEEP_ALL);
  proto.mutable_sweep()->set_new_weights_losses(false);
  proto.set_priority(-5);
  proto.mutable_deadline()->set_seconds(60);
  proto.mutable_deadline()->set_nanos(5);
  proto.mutable_result_ttl()->set_seconds(9);
  (*proto.mutable_labels())["layer"] = "q";
  proto.set_device("cpu");
  proto.set_return_pruned_weight(true);
  proto.set_product_precision(v1::PRODUCT_PRECISION_TF32);
  const absl::StatusOr<JobSpec> spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(ToProto(*spec).DebugString(), proto.DebugString());
  EXPECT_EQ(spec->options.product_precision, ProductPrecision::kTf32);
  EXPECT_EQ(spec->sweep[0].options.product_precision, ProductPrecision::kTf32);

  proto.set_product_precision(v1::PRODUCT_PRECISION_BF16);
  EXPECT_EQ(ToProto(*FromProto(proto)).DebugString(), proto.DebugString());
  proto.set_product_precision(v1::PRODUCT_PRECISION_FP32);
  EXPECT_EQ(ToProto(*FromProto(proto)).DebugString(), proto.DebugString());

  proto.mutable_warm_start()->set_mask("tensors/m");
  EXPECT_EQ(ToProto(*FromProto(proto)).DebugString(), proto.DebugString());
  proto.mutable_warm_start()->set_saliency("tensors/s");
  EXPECT_EQ(ToProto(*FromProto(proto)).DebugString(), proto.DebugString());
  proto.mutable_pattern()->mutable_unstructured()->set_sparsity(0.6);
  EXPECT_EQ(ToProto(*FromProto(proto)).DebugString(), proto.DebugString());
}

TEST(ConvertJobTest, TheJointSearchHasAnAlphaOfItsOwn) {
  v1::JobSpec proto = Minimal();
  EXPECT_FALSE(FromProto(proto)->options.joint);
  EXPECT_EQ(FromProto(proto)->options.joint_options.damping, 0.001);
  proto.mutable_refine()->set_joint(true);
  EXPECT_TRUE(FromProto(proto)->options.joint);
  EXPECT_EQ(FromProto(proto)->options.alpha, 0.4);
  v1::SweepPoint& point = *proto.mutable_sweep()->add_points();
  point.set_joint(false);
  EXPECT_EQ(FromProto(proto)->sweep[0].options.alpha, 0.9);
  point.set_alpha(0.25);
  EXPECT_EQ(FromProto(proto)->sweep[0].options.alpha, 0.25);
  point.clear_alpha();
  proto.mutable_sparsefw()->set_alpha(0.75);
  EXPECT_EQ(FromProto(proto)->options.alpha, 0.75);
  EXPECT_EQ(FromProto(proto)->sweep[0].options.alpha, 0.75);
  // The losses with and without new weights of every point, unless told otherwise.
  EXPECT_TRUE(FromProto(proto)->sweep[0].options.measure_new_weights);
  EXPECT_FALSE(FromProto(proto)->options.measure_new_weights);
}

TEST(ConvertJobTest, TheJointSearchHasAWindowThatDependsOnThePattern) {
  const auto window = [](const v1::JobSpec& proto) {
    const SolveOptions options = FromProto(proto)->options;
    return std::pair(options.alpha, options.joint_options.excluded);
  };
  v1::JobSpec proto = Minimal();
  proto.mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  proto.mutable_refine()->set_joint(false);
  EXPECT_EQ(window(proto), std::pair(0.9, 0.25));  // excluded is not read
  proto.mutable_refine()->set_joint(true);
  EXPECT_EQ(window(proto).first, 0.9);
  EXPECT_NEAR(window(proto).second, 0.45, 1e-12);
  proto.mutable_pattern()->mutable_unstructured()->set_sparsity(0.6);
  proto.mutable_sparsefw()->set_alpha(0.5);
  EXPECT_EQ(window(proto).first, 0.5);
  EXPECT_NEAR(window(proto).second, 0.4, 1e-12);
  proto.mutable_sparsefw()->set_alpha(0);
  proto.mutable_pattern()->mutable_unstructured()->set_sparsity(0.25);
  EXPECT_EQ(window(proto), std::pair(0.0, 0.0));
  proto.mutable_refine()->set_joint_excluded(0.125);
  EXPECT_EQ(window(proto).second, 0.125);
  proto.mutable_pattern()->mutable_nm()->set_keep(2);
  proto.mutable_pattern()->mutable_nm()->set_group(4);
  proto.clear_sparsefw();
  EXPECT_EQ(window(proto), std::pair(0.4, 0.125));
  proto.mutable_refine()->clear_joint_excluded();
  EXPECT_EQ(window(proto), std::pair(0.4, 0.25));
  // The preset `best` has no other.
  proto.set_preset(v1::PRESET_BEST);
  EXPECT_EQ(window(proto), std::pair(0.4, 0.25));
  proto = Minimal();
  proto.mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  proto.set_preset(v1::PRESET_BEST);
  EXPECT_EQ(window(proto).first, 0.9);
  EXPECT_NEAR(window(proto).second, 0.45, 1e-12);
  // Other presets bring an alpha, but no search.
  proto.set_preset(v1::PRESET_FAST);
  proto.mutable_refine()->set_joint(true);
  EXPECT_EQ(window(proto).first, 0.5);
  EXPECT_NEAR(window(proto).second, 0.25, 1e-12);
  proto.mutable_pattern()->mutable_per_row()->set_sparsity(0.75);
  EXPECT_NEAR(window(proto).second, 0.625, 1e-12);
  // With nothing fixed all may leave, so that all may enter.
  proto = Minimal();
  proto.mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  proto.mutable_refine()->set_joint(true);
  proto.mutable_refine()->set_keep_fixed(false);
  EXPECT_EQ(window(proto).second, 0);
  // A sweep's points, each by its pattern.
  proto = Minimal();
  proto.mutable_refine()->set_joint(true);
  proto.mutable_sweep()->add_points();
  proto.mutable_sweep()->add_points()->mutable_pattern()->mutable_per_row()->set_sparsity(0.75);
  const std::vector<SweepPoint> points = FromProto(proto)->sweep;
  EXPECT_EQ(points[0].options.alpha, 0.4);
  EXPECT_EQ(points[1].options.alpha, 0.9);
  EXPECT_NEAR(points[1].options.joint_options.excluded, 0.725, 1e-12);
}

TEST(ConvertJobTest, APresetGivesWayToWhatIsSaid) {
  v1::JobSpec proto = Minimal();
  proto.set_preset(v1::PRESET_PAPER);
  v1::JobSpec sparsefw = Minimal();
  sparsefw.set_method(v1::METHOD_SPARSEFW);
  v1::JobSpec paper = ToProto(*FromProto(proto));
  EXPECT_EQ(paper.preset(), v1::PRESET_PAPER);
  paper.clear_preset();
  EXPECT_EQ(paper.DebugString(), ToProto(*FromProto(sparsefw)).DebugString());
  proto.set_preset(v1::PRESET_FAST);
  EXPECT_EQ(FromProto(proto)->options.method, Method::kWanda);
  EXPECT_TRUE(FromProto(proto)->options.swaps);
  EXPECT_EQ(FromProto(proto)->options.alpha, 0.5);
  proto.set_preset(v1::PRESET_BALANCED);
  EXPECT_EQ(FromProto(proto)->options.method, Method::kSparseFw);
  EXPECT_EQ(FromProto(proto)->options.step_rule, StepRule::kLineSearch);
  EXPECT_TRUE(FromProto(proto)->options.swaps);
  proto.mutable_sparsefw()->set_step_rule(v1::STEP_RULE_AUTO);
  EXPECT_EQ(FromProto(proto)->options.step_rule, StepRule::kAuto);
  proto.mutable_sparsefw()->set_step_rule(v1::STEP_RULE_OPEN_LOOP);
  proto.mutable_sparsefw()->set_alpha(0.25);
  proto.mutable_refine()->set_swaps(false);
  EXPECT_EQ(FromProto(proto)->options.step_rule, StepRule::kOpenLoop);
  EXPECT_EQ(FromProto(proto)->options.alpha, 0.25);
  EXPECT_FALSE(FromProto(proto)->options.swaps);
  // What a preset brings and what is asked for may exclude each other.
  proto.mutable_refine()->clear_swaps();
  proto.set_method(v1::METHOD_SPARSEGPT);
  EXPECT_FALSE(FromProto(proto)->options.swaps);
  proto.set_preset(v1::PRESET_BEST);
  EXPECT_TRUE(FromProto(proto)->options.joint);
  EXPECT_EQ(FromProto(proto)->options.method, Method::kSparseGpt);
  proto.set_reconstruct(true);
  EXPECT_FALSE(FromProto(proto)->options.joint);
  proto.set_preset(static_cast<v1::Preset>(42));
  ExpectSpecRefused(FromProto(proto).status(), "ENUM_UNKNOWN", "preset");
}

TEST(ConvertJobTest, APointOfASweepTakesFromTheJobWhatItDoesNotSay) {
  v1::JobSpec proto = Minimal();
  proto.set_method(v1::METHOD_RIA);
  proto.mutable_refine()->set_swaps(true);
  proto.mutable_sparsefw()->set_alpha(0.25);
  proto.mutable_sparsefw()->set_iterations(7);
  v1::Sweep& sweep = *proto.mutable_sweep();
  sweep.add_points();
  sweep.add_points()->set_method(v1::METHOD_SPARSEFW);
  sweep.add_points()->set_alpha(0);
  sweep.add_points()->set_swaps(false);
  sweep.add_points()->mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  const absl::StatusOr<JobSpec> spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->sweep.size(), 5);
  EXPECT_EQ(spec->sweep_keep, SweepKeep::kBest);
  for (const SweepPoint& point : spec->sweep) EXPECT_EQ(point.options.iterations, 7);
  EXPECT_EQ(spec->sweep[0].options.method, Method::kRia);
  EXPECT_EQ(spec->sweep[0].options.alpha, 0.25);
  EXPECT_TRUE(spec->sweep[0].options.swaps);
  EXPECT_EQ(spec->sweep[0].pattern, Pattern::KeepOfGroup(2, 4));
  EXPECT_EQ(spec->sweep[1].options.method, Method::kSparseFw);
  EXPECT_EQ(spec->sweep[2].options.alpha, 0);
  EXPECT_FALSE(spec->sweep[3].options.swaps);
  EXPECT_EQ(spec->sweep[4].pattern, Pattern::PerRow(0.5));
}

TEST(ConvertJobTest, ASweepOverPatternsNeedsNoneOfTheJob) {
  v1::JobSpec proto;
  proto.mutable_sweep()->add_points()->mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  const absl::StatusOr<JobSpec> spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->pattern, Pattern::PerRow(0.5));
  proto.mutable_sweep()->add_points()->set_alpha(0.5);
  ExpectSpecRefused(FromProto(proto).status(), "PATTERN_INVALID", "pattern must be");
}

TEST(ConvertJobTest, NamesThePointOfASweepThatIsWrong) {
  v1::JobSpec proto = Minimal();
  proto.mutable_sweep()->add_points();
  proto.mutable_sweep()->add_points()->set_method(static_cast<v1::Method>(42));
  ExpectSpecRefused(FromProto(proto).status(), "ENUM_UNKNOWN", "sweep.points[1]: method must be");
  proto = Minimal();
  for (int i = 0; i < 257; ++i) proto.mutable_sweep()->add_points();
  ExpectSpecRefused(FromProto(proto).status(), "OPTION_INVALID", "at most 256; got 257");
  proto = Minimal();
  proto.mutable_sweep()->set_keep(static_cast<v1::Sweep::Keep>(9));
  ExpectSpecRefused(FromProto(proto).status(), "ENUM_UNKNOWN", "sweep.keep");
}

TEST(ConvertJobTest, NamesWhatIsWrong) {
  v1::JobSpec spec = Minimal();
  spec.set_method(static_cast<v1::Method>(42));
  ExpectSpecRefused(FromProto(spec).status(), "ENUM_UNKNOWN",
                    "method must be one of the values of this version; got 42");
  spec = Minimal();
  spec.mutable_sparsefw()->set_step_rule(static_cast<v1::StepRule>(42));
  ExpectSpecRefused(FromProto(spec).status(), "ENUM_UNKNOWN", "sparsefw.step_rule");
  spec = Minimal();
  spec.set_product_precision(static_cast<v1::ProductPrecision>(42));
  ExpectSpecRefused(FromProto(spec).status(), "ENUM_UNKNOWN",
                    "product_precision must be one of the values of this version; got 42");
  spec = Minimal();
  spec.mutable_warm_start()->set_method(static_cast<v1::Method>(42));
  ExpectSpecRefused(FromProto(spec).status(), "ENUM_UNKNOWN", "warm_start.method");
  spec.mutable_warm_start()->set_method(v1::METHOD_SPARSEFW);
  ExpectSpecRefused(FromProto(spec).status(), "OPTION_INVALID",
                    "must be MAGNITUDE, WANDA or RIA; got SPARSEFW");
  spec = Minimal();
  spec.clear_pattern();
  ExpectSpecRefused(FromProto(spec).status(), "PATTERN_INVALID", "pattern must be");
  spec = Minimal();
  spec.mutable_deadline()->set_nanos(2'000'000'000);
  ExpectSpecRefused(FromProto(spec).status(), "DURATION_INVALID",
                    "deadline must be a valid Duration");
  spec = Minimal();
  (*spec.mutable_labels())[std::string(65, 'k')] = "v";
  ExpectSpecRefused(FromProto(spec).status(), "TEXT_TOO_LONG", "must be at most 64 bytes; got 65");
  spec = Minimal();
  for (int i = 0; i < 65; ++i) (*spec.mutable_labels())[absl::StrFormat("%d", i)].push_back('v');
  ExpectSpecRefused(FromProto(spec).status(), "LABELS_INVALID", "at most 64; got 65");
}

// Writes an option into the message and reads it back.
template <typename Value>
void ExpectKept(google::protobuf::Message& message, std::string_view path, Value value) {
  ASSERT_NE(MutableField(message, path).message, nullptr) << path;
  WriteOption(message, path, value);
  Value read{};
  const absl::StatusOr<bool> found = ReadOption(FieldAt(message, path), path, &read);
  ASSERT_TRUE(found.ok() && *found) << path << found.status();
  EXPECT_EQ(read, value) << path;
}

// Every value of an enum; of a number one that is not its default.
template <typename Value>
void ExpectKeepsAll(google::protobuf::Message& message, std::string_view path) {
  if constexpr (std::is_enum_v<Value>) {
    const size_t count = NamesOf<Value>().size();
    EXPECT_GT(count, 2u) << path;
    for (size_t i = 0; i < count; ++i) ExpectKept(message, path, static_cast<Value>(i));
  } else {
    ExpectKept(message, path, static_cast<Value>(1));
    ExpectKept(message, path, static_cast<Value>(0));
  }
}

TEST(ConvertJobTest, EveryValueOfEveryOptionHasItsField) {
  v1::JobSpec job;
  v1::SweepPoint point;
  int of_points = 0;
  ForEachOption([&](const OptionInfo& info, auto get) {
    SolveOptions options;
    using Value = std::remove_reference_t<decltype(get(options))>;
    if (info.path.empty()) return;
    ExpectKeepsAll<Value>(job, info.path);
    if (MutableField(point, info.name).message == nullptr) return;
    ++of_points;
    ExpectKeepsAll<Value>(point, info.name);
  });
  EXPECT_EQ(of_points + 1, v1::SweepPoint::descriptor()->field_count()) << "all but the pattern";
}

TEST(ConvertJobTest, AZeroIsNotTakenForNothing) {
  v1::JobSpec proto = Minimal();
  proto.mutable_sparsefw()->set_report_every(0);
  EXPECT_EQ(FromProto(proto)->options.report_every, 0);
  proto.mutable_sparsegpt()->set_block_size(0);
  EXPECT_EQ(FromProto(proto)->options.sparsegpt.block, 0);
  proto.mutable_sparsefw()->clear_report_every();
  EXPECT_EQ(FromProto(proto)->options.report_every, 100);
}

}  // namespace
}  // namespace sparsefw::server
