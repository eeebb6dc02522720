#include "server/storage/job_record.h"

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "server/fields/option_fields.h"
#include "server/jobs/job_store.h"
#include "sparsefw/options.h"
#include "sparsefw/reason.h"
#include "sparsefw/storage/v1/job_record.pb.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

// All fields of a struct. A field that is added does not compile until it is named here (and, but
// for SolveOptions, in job_record.cc); then AllSet fails until the test sets it, and the round trip
// until the record has a field of that name and type.
auto Fields(const Pattern& v) {
  const auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
auto Fields(const SaliencyOptions& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const SparseGptOptions& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const JointOptions& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const SolveOptions& v) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
}
auto Fields(const SweepPoint& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const JobSpec& v) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, not_kept, p, q, r] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
}
auto Fields(const ProgressReport& v) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
}
auto Fields(const JointSummary& v) {
  const auto& [a, b, c, d, e] = v;
  return std::tie(a, b, c, d, e);
}
auto Fields(const UnshrunkLosses& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto Fields(const SolveSummary& v) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, x, screening] = v;
  const auto& [t, u, w] = screening;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, x, t, u, w);
}
auto Fields(const JobResult& v) {
  const auto& [a, b, c, d, e, f, g, h, i] = v;
  return std::tie(a, b, c, d, e, f, g, h, i);
}
auto Fields(const SweepOutcome& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const StateChange& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const Owner& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const RunMark& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto Fields(const Job& v) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z);
}

template <typename T>
concept Struct = requires(const T& value) {
  Fields(value);
};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Doubles bit for bit.
template <typename T>
bool Same(const T& a, const T& b) {
  if constexpr (Struct<T>) {
    return std::apply(
        [&](const auto&... of_a) {
          return std::apply([&](const auto&... of_b) { return (Same(of_a, of_b) && ...); },
                            Fields(b));
        },
        Fields(a));
  } else if constexpr (IsVector<T>::value) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!Same(a[i], b[i])) return false;
    }
    return true;
  } else if constexpr (IsOptional<T>::value) {
    return a.has_value() == b.has_value() && (!a.has_value() || Same(*a, *b));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  } else {
    return a == b;
  }
}

// No field of it, or of what it holds, is the zero of its type, which a record that
// lacks the field gives. The results of a sweep's points have no sweep of their own.
template <typename T>
bool AllSet(const T& value) {
  if constexpr (Struct<T>) {
    return std::apply([](const auto&... field) { return (AllSet(field) && ...); }, Fields(value));
  } else if constexpr (std::is_same_v<T, std::vector<SweepOutcome>>) {
    return !value.empty();
  } else if constexpr (IsVector<T>::value) {
    return !value.empty() && AllSet(value.front());
  } else if constexpr (IsOptional<T>::value) {
    return value.has_value() && AllSet(*value);
  } else {
    return !Same(value, T());
  }
}

const absl::Duration kTick = absl::Nanoseconds(1) / 4;

absl::Status AnError(const std::string& text) {
  absl::Status status = WithReason(absl::ResourceExhaustedError(text + " \xff\xfe"), "HOST_MEMORY",
                                   {{"retry_delay_ms", "1000"}, {"field", "gram"}});
  status.SetPayload("other", absl::Cord(std::string("\0\x80", 2)));
  return status;
}

SolveOptions Options(int seed) {
  SolveOptions options;
  options.method = Method::kSparseGpt;
  options.warm_start = {SaliencyMethod::kRia, 0.1 * seed};
  options.shrinkage = 0.0625;
  options.alpha = 1.0 / 3;
  options.iterations = seed;
  options.step_rule = StepRule::kLineSearch;
  options.rel_gap = std::numeric_limits<double>::denorm_min();
  options.report_every = 7;
  options.swaps = true;
  options.keep_fixed = true;
  options.reconstruct = true;
  options.joint = true;
  options.joint_options = {0.125, 0.4};
  options.sparsegpt = {0.25, 64};
  options.measure_new_weights = true;
  options.deadline = absl::FromUnixSeconds(-5) + kTick;
  options.threads = 3;
  options.product_precision = ProductPrecision::kBf16;
  return options;
}

SolveSummary Summary() {
  SolveSummary solve;
  solve.kept_count = int64_t{1} << 40;
  solve.full_loss = -0.0;
  solve.warm_start_loss = std::nextafter(1.0, 2.0);
  solve.relaxed_loss = 3;
  solve.rounded_loss = 4;
  solve.final_loss = 5;
  solve.reconstructed_loss = std::numeric_limits<double>::quiet_NaN();
  solve.unshrunk = {7.5, 3.25, 2.75};
  solve.damping = 0.01;
  solve.joint = {true, 6.5, 0.25, 77, true};
  solve.new_weights_loss = 4.25;
  solve.lower_bound = std::numeric_limits<double>::infinity();
  solve.relative_reduction = -0.5;
  solve.iterations = 2000;
  solve.swaps = 12;
  solve.drift = 1e-300;
  solve.stop_cause = StopCause::kDeadline;
  solve.candidate = CandidateKind::kRefined;
  solve.load_time = absl::Milliseconds(3) + kTick;
  solve.solve_time = absl::Hours(3);
  solve.screening = {.epochs = 11, .iterations = 1943, .active_share = 0.0425};
  return solve;
}

JobResult Result() {
  JobResult result;
  result.mask = "tensors/mask";
  result.pruned_weight = "tensors/pruned";
  result.solve = Summary();
  result.weights_updated = true;
  result.device = "cuda:1";
  result.queue_time = absl::Nanoseconds(1);
  result.sweep.push_back({AnError("a point"), JobResult()});
  result.sweep.push_back({absl::OkStatus(), JobResult()});
  result.sweep.back().result.mask = "tensors/point";
  result.sweep.back().result.solve = Summary();
  result.best_point = 1;
  result.incomplete = AnError("no room");
  return result;
}

JobSpec Spec() {
  JobSpec spec;
  spec.weight = "tensors/w";
  spec.gram = "tensors/g";
  spec.warm_mask = "tensors/m";
  spec.warm_saliency = "tensors/s";
  spec.pattern = {Pattern::Kind::kKeepOfGroup, 0.7, 3, 8};
  spec.options = Options(11);
  spec.priority = -100;
  spec.deadline = absl::Seconds(100) + 3 * kTick;
  spec.result_ttl = absl::InfiniteDuration();
  spec.labels = {{"model", "minilm"}, {"", "\xc3\xa9"}};
  spec.device = "cuda";
  spec.return_pruned_weight = true;
  spec.sweep = {{{Pattern::Kind::kPerRow, 0.1, 1, 2}, Options(12)}, {Pattern(), Options(13)}};
  spec.sweep_keep = SweepKeep::kAll;
  spec.ends_with_stream = true;
  spec.preset = Preset::kBest;
  spec.preset_overrides = {"alpha", "method"};
  spec.traceparent = "trace";
  return spec;
}

ProgressReport Progress() {
  return {1, 2, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11, 12, absl::Seconds(13)};
}

Job FullJob() {
  Job job;
  job.name = "jobs/0123";
  job.spec = Spec();
  job.state = JobState::kFailed;
  job.progress = Progress();
  job.result = Result();
  job.error = AnError("the job");
  job.revision = (int64_t{1} << 40) + 1;
  job.state_revision = int64_t{1} << 40;
  job.states = {{JobState::kRunning, 1}, {JobState::kFailed, int64_t{1} << 40}};
  job.create_time = absl::FromUnixNanos(1'700'000'000'123'456'789) + kTick;
  job.deadline = job.create_time + job.spec.deadline;
  job.start_time = absl::FromUnixSeconds(-62'000'000'000) - kTick;
  job.end_time = absl::FromUnixSeconds(1) + 2 * kTick;
  job.expire_time = absl::InfinitePast();
  job.queue_position = 4;
  job.owner = {"tenant", "somebody"};
  job.rows = 5;
  job.cols = 6;
  job.attempts = 2;
  job.vain_attempts = 7;
  job.reported = {8, 9};
  job.saved = {10, 11};
  job.alone = true;
  job.cancel_requested = true;
  job.request_id = "request";
  return job;
}

TEST(JobRecordTest, KeepsEveryFieldExactly) {
  const Job job = FullJob();
  ASSERT_TRUE(AllSet(job)) << "a field of this test is not set";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job read, DecodeJob(EncodeJob(job)));
  EXPECT_TRUE(Same(job.spec, read.spec));
  EXPECT_TRUE(Same(job.progress, read.progress));
  EXPECT_TRUE(Same(job.result, read.result));
  EXPECT_EQ(job.error, read.error) << "with all payloads";
  EXPECT_TRUE(Same(job, read));
}

TEST(JobRecordTest, KeepsDefaultsAndInfiniteTimes) {
  Job job;
  job.spec.options.keep_fixed = false;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job read, DecodeJob(EncodeJob(job)));
  EXPECT_TRUE(Same(job, read));
  EXPECT_EQ(read.deadline, absl::InfiniteFuture());
  EXPECT_EQ(read.start_time, absl::InfinitePast());
  EXPECT_FALSE(read.progress);
  EXPECT_FALSE(read.result);
}

TEST(JobRecordTest, KeepsEveryValueOfItsEnums) {
  Job job;
  for (const JobState state : {JobState::kQueued, JobState::kRunning, JobState::kSucceeded,
                               JobState::kFailed, JobState::kCancelled}) {
    job.state = state;
    EXPECT_EQ(DecodeJob(EncodeJob(job))->state, state);
  }
  for (const StopCause cause :
       {StopCause::kIterations, StopCause::kGap, StopCause::kDeadline, StopCause::kCancelled}) {
    job.result.emplace().solve.stop_cause = cause;
    EXPECT_EQ(DecodeJob(EncodeJob(job))->result->solve.stop_cause, cause);
  }
}

TEST(JobRecordTest, ProgressAloneIsSmallAndExact) {
  const Job job = FullJob();
  const std::string bytes = EncodeProgress({*job.progress, job.revision});
  EXPECT_LT(bytes.size(), 200U);
  Job other;
  ASSERT_THAT(DecodeProgress(bytes, &other), testing::IsOk());
  EXPECT_TRUE(Same(other.progress, job.progress));
  EXPECT_EQ(other.revision, job.revision);
}

// A sweep with as many points as there may be, each with every field set.
TEST(JobRecordTest, AJobCountsForItsRecordAndTheResultThatItWillHave) {
  Job job = FullJob();
  job.state = JobState::kSucceeded;
  job.spec.sweep.assign(256, job.spec.sweep.front());
  JobResult point = *job.result;
  point.sweep.clear();
  point.mask = point.pruned_weight = "tensors/0123456789abcdef";
  point.incomplete = absl::OkStatus();
  job.result->sweep.assign(256, {absl::OkStatus(), point});
  job.states.assign(64, {JobState::kRunning, int64_t{1} << 40});
  for (int i = 0; i < 64; ++i) job.spec.labels["key" + std::to_string(i)] = std::string(200, 'x');
  const auto record = static_cast<int64_t>(EncodeJob(job).size());
  EXPECT_GE(KeptBytes(job), record);
  EXPECT_LE(KeptBytes(job), 2 * record) << "not much more";
  Job accepted = job;
  accepted.state = JobState::kQueued;
  accepted.result.reset();
  EXPECT_GE(KeptBytes(accepted), KeptBytes(job)) << "its end needs no more than it had";

  job.result->sweep.assign(
      256, {WithReason(absl::InternalError(std::string(500, 'e')), "HOST_MEMORY"), JobResult()});
  EXPECT_GE(KeptBytes(job), static_cast<int64_t>(EncodeJob(job).size()));
  EXPECT_GE(KeptBytes(Job()), static_cast<int64_t>(EncodeJob(Job()).size()));
}

TEST(JobRecordTest, DamagedBytesAreAnError) {
  const auto damaged = testing::StatusIs(absl::StatusCode::kInternal, "STORE_FAILED", "damaged");
  std::string bytes = EncodeJob(FullJob());
  bytes.resize(bytes.size() / 2);
  EXPECT_THAT(DecodeJob(bytes), damaged);
  Job job;
  EXPECT_THAT(DecodeProgress("\xff\xff", &job), damaged);
  sparsefw::storage::v1::JobRecord record;
  ASSERT_TRUE(record.ParseFromString(EncodeJob(job)));
  record.mutable_spec()->mutable_options()->set_method(
      static_cast<sparsefw::storage::v1::Method>(99));
  EXPECT_THAT(DecodeJob(record.SerializeAsString()), damaged) << "a method that is none";
  job.result.emplace().sweep.resize(2);
  job.spec.sweep.resize(2);
  EXPECT_THAT(DecodeJob(EncodeJob(job)), testing::IsOk());
  job.spec.sweep.resize(1);
  EXPECT_THAT(DecodeJob(EncodeJob(job)), damaged) << "an outcome of no point";
}

}  // namespace
}  // namespace sparsefw::server
