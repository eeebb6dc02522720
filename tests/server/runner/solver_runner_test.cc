// The runner over a store whose disk fails: what is reserved, what is kept.
#include "server/runner/solver_runner.h"

#include <fstream>
#include <functional>
#include <utility>

#include "gmock/gmock.h"
#include "tests/server/tensors/faulty_spool.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 4;
constexpr int64_t kCols = 16;
constexpr int64_t kWeightBytes = kRows * kCols * 4;
constexpr int64_t kMaskBytes = kRows * kCols / 8;
constexpr int64_t kInputBytes = kWeightBytes + kCols * kCols * 4;

// A device whose engines are not made: only what they would need is asked.
class SomeDevice final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  DeviceDescription Describe() const override { return {.name = "cuda:0", .description = ""}; }
  bool has_device_memory() const override { return true; }
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions&) const override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(int64_t,
                                                                         int) const override {
    return absl::UnimplementedError("");
  }
  int64_t EstimateHostBytes(int64_t, int64_t, const MemoryRequest&) const override { return 7000; }
  int64_t EstimateDeviceBytes(int64_t, int64_t, const MemoryRequest& request) const override {
    return 1000 + (request.device_gram ? 0 : kGramBytes) + (request.shrinks ? kShrunkBytes : 0);
  }
  int64_t DeviceGramBytes(int64_t, DType) const override { return kGramBytes; }
  bool shrinks_gram() const override { return shrinks; }

  static constexpr int64_t kGramBytes = 300;
  static constexpr int64_t kShrunkBytes = 7;
  bool shrinks = false;
};

class SolverRunnerTest : public ::testing::Test {
 protected:
  void Open(int64_t budget, SolverRunnerOptions runner = {}, int64_t max_tensors = 100) {
    TensorStoreOptions options;
    options.max_tensors = max_tensors;
    options.budget_bytes = budget;
    options.gram_backend = *FindBackend("cpu");
    options.now = [this] { return time_.Now(); };
    options.steady_now = [this] { return time_.SteadyNow(); };
    auto folder = OpenSpoolFolder(folder_.File("spool"));
    ASSERT_THAT(folder, IsOk());
    auto store =
        TensorStore::Open(options, std::make_shared<FaultySpool>(*std::move(folder), faults_));
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
    if (runner.backends.empty()) runner.backends = {*FindBackend("cpu")};
    runner.default_backends = runner.backends;
    runner_ = std::make_unique<SolverRunner>(store_.get(), runner);
    std::vector<float> weight(kRows * kCols);
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 7) - 3.0F;
    std::vector<float> gram(kCols * kCols);
    for (size_t i = 0; i < kCols; ++i) gram[i * kCols + i] = static_cast<float>(i + 1);
    job_.spec.weight = Store(TensorKind::kWeight, kRows, weight);
    job_.spec.gram = Store(TensorKind::kGram, kCols, gram);
    job_.spec.pattern = Pattern::PerRow(0.5);
    job_.spec.options.method = Method::kWanda;
    job_.spec.return_pruned_weight = true;
    job_.name = "jobs/1";
    job_.create_time = absl::Now();
  }
  std::string Store(TensorKind kind, int64_t rows, const std::vector<float>& values) {
    auto info = store_->Put({kind, DType::kF32, rows, kCols, 0}, std::as_bytes(std::span(values)),
                            {}, absl::InfiniteFuture());
    EXPECT_THAT(info, IsOk());
    return info.ok() ? info->name : "";
  }
  // Overwrites a value of a tensor that is stored.
  void Overwrite(const std::string& name, int64_t index, float value) {
    std::fstream file(folder_.File("spool/" + name.substr(name.find('/') + 1) + ".tensor"),
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(index * 4);
    file.write(reinterpret_cast<const char*>(&value), 4);
    ASSERT_TRUE(file.flush().good());
  }
  absl::StatusOr<JobResult> Run(
      JobRunner::Inputs& inputs, const Placement& placement = {},
      const std::function<void(const ProgressReport&)>& report = [](const ProgressReport&) {}) {
    return runner_->Run(job_, inputs, placement, StopSignal(), report);
  }

  testing::TempFolder folder_;
  FakeTime time_;
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::unique_ptr<TensorStore> store_;
  std::unique_ptr<SolverRunner> runner_;
  Job job_;
};

TEST_F(SolverRunnerTest, TheResultHasItsRoomFromTheStart) {
  Open(1 << 20);
  const int64_t before = store_->usage().used_bytes;
  EXPECT_EQ(before, kInputBytes);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  EXPECT_EQ(store_->usage().used_bytes, before + kMaskBytes + kWeightBytes);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobResult result, Run(*inputs));
  EXPECT_FALSE(result.pruned_weight.empty());
  EXPECT_EQ(store_->usage().used_bytes, before + kMaskBytes + kWeightBytes);
  inputs.reset();
  EXPECT_EQ(store_->usage().used_bytes, before + kMaskBytes + kWeightBytes);
  runner_->Discard(job_);
  EXPECT_EQ(store_->usage().used_bytes, before);
}

TEST_F(SolverRunnerTest, WithAShrinkageAJobNeedsAGramOfItsOwn) {
  SomeDevice device;
  SolverRunnerOptions options;
  options.backends = options.default_backends = {&device};
  options.solve_memory_bytes = 7000 + kCols * kCols * 4;
  Open(1 << 20, options);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const DeviceNeed shared, runner_->Check(job_.spec, {}));
  EXPECT_EQ(shared.bytes, 1000);
  EXPECT_EQ(shared.gram_bytes, SomeDevice::kGramBytes);
  job_.spec.options.shrinkage = 0.5;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const DeviceNeed own, runner_->Check(job_.spec, {}));
  EXPECT_EQ(own.bytes, 1000 + SomeDevice::kGramBytes + SomeDevice::kShrunkBytes);
  EXPECT_EQ(own.gram_bytes, 0);
  // On the host too.
  --options.solve_memory_bytes;
  runner_ = std::make_unique<SolverRunner>(store_.get(), options);
  EXPECT_THAT(runner_->Check(job_.spec, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY", "[4, 16]"));
  job_.spec.options.shrinkage = 0;
  EXPECT_THAT(runner_->Check(job_.spec, {}), IsOk());
  // A device that shrinks makes it from the one that jobs share, and the host has none but for its
  // own methods.
  device.shrinks = true;
  job_.spec.options.shrinkage = 0.5;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const DeviceNeed both, runner_->Check(job_.spec, {}));
  EXPECT_EQ(both.bytes, 1000 + SomeDevice::kShrunkBytes);
  EXPECT_EQ(both.gram_bytes, SomeDevice::kGramBytes);
  // It has no room for both: the job's own alone.
  options.device_memory_bytes = both.total_bytes();
  runner_ = std::make_unique<SolverRunner>(store_.get(), options);
  EXPECT_EQ(runner_->Check(job_.spec, {})->gram_bytes, SomeDevice::kGramBytes);
  --options.device_memory_bytes;
  runner_ = std::make_unique<SolverRunner>(store_.get(), options);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const DeviceNeed alone, runner_->Check(job_.spec, {}));
  EXPECT_EQ(alone.bytes, own.bytes);
  EXPECT_EQ(alone.gram_bytes, 0);
  job_.spec.options.joint = true;
  options.solve_memory_bytes = 7000 + JointStartBytes(kRows, kCols);
  runner_ = std::make_unique<SolverRunner>(store_.get(), options);
  EXPECT_THAT(runner_->Check(job_.spec, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY", "[4, 16]"));
  job_.spec.options.shrinkage = 0;
  EXPECT_THAT(runner_->Check(job_.spec, {}), IsOk());
}

TEST_F(SolverRunnerTest, AJobWithoutRoomForItsResultIsRefused) {
  Open(kInputBytes + kMaskBytes + kWeightBytes - 1);
  EXPECT_THAT(runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked),
              StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY", "results"));
  job_.spec.return_pruned_weight = false;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  // Others cannot take it, the job finds it.
  EXPECT_THAT(store_->ReserveRoom({kWeightBytes, 1}, Owner()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Run(*inputs), IsOk());
}

TEST_F(SolverRunnerTest, EveryResultHasItsPlaceFromTheStart) {
  Open(1 << 20, {}, /*max_tensors=*/2 + 4);  // the inputs, three masks and the new weight
  job_.spec.sweep_keep = SweepKeep::kAll;
  for (const Method method : {Method::kMagnitude, Method::kWanda, Method::kRia}) {
    job_.spec.sweep.push_back({.pattern = Pattern::PerRow(0.5), .options = {.method = method}});
  }
  EXPECT_THAT(runner_->Check(job_.spec, {}), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  EXPECT_EQ(store_->usage().reserved, 4);
  EXPECT_THAT(runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked),
              StatusIs(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENSORS"));
  // One that an earlier process has accepted keeps its promise.
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto recovered, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kCheckedBefore));
  for (auto* one : {&inputs, &recovered}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobResult result, Run(**one));
    SPARSEFW_EXPECT_OK(result.incomplete);
    ASSERT_EQ(result.sweep.size(), 3U);
    for (const SweepOutcome& outcome : result.sweep) EXPECT_FALSE(outcome.result.mask.empty());
    EXPECT_FALSE(result.pruned_weight.empty());
  }
  EXPECT_EQ(store_->usage().reserved, 0);
  EXPECT_EQ(store_->usage().tensors, 2 + 8);
  for (int more = 0; more < 4; ++more) job_.spec.sweep.push_back(job_.spec.sweep.front());
  EXPECT_THAT(runner_->Check(job_.spec, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENSORS", "they are 8"));
}

TEST_F(SolverRunnerTest, TheMaskIsKeptWhenThePrunedWeightCannotBeStored) {
  Open(1 << 20);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  faults_->FailWritesAfter(kMaskBytes, DiskFull());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobResult result, Run(*inputs));
  inputs.reset();
  EXPECT_THAT(result.incomplete, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_THAT(std::string(result.incomplete.message()),
              HasSubstr("the pruned weight could not be stored (the mask was, as " + result.mask +
                        "): the disk is full"));
  EXPECT_THAT(store_->Acquire(result.mask), IsOk());
  EXPECT_TRUE(result.pruned_weight.empty());
  EXPECT_EQ(store_->usage().used_bytes, kInputBytes + kMaskBytes);
}

TEST_F(SolverRunnerTest, AMaskOfASweepThatCannotBeStoredDoesNotEndTheOthers) {
  Open(1 << 20);
  job_.spec.return_pruned_weight = false;
  job_.spec.sweep_keep = SweepKeep::kAll;
  for (const Method method : {Method::kMagnitude, Method::kWanda, Method::kRia}) {
    job_.spec.sweep.push_back({.pattern = Pattern::PerRow(0.5), .options = {.method = method}});
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  faults_->FailWritesAfter(2 * kMaskBytes, DiskFull());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobResult result, Run(*inputs));
  ASSERT_EQ(result.sweep.size(), 3U);
  for (const size_t point : {0, 1}) {
    EXPECT_THAT(result.sweep[point].error, IsOk());
    EXPECT_THAT(store_->Acquire(result.sweep[point].result.mask), IsOk());
  }
  EXPECT_THAT(result.sweep[2].error, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_LT(result.best_point, 2);
  EXPECT_EQ(result.mask, result.sweep[static_cast<size_t>(result.best_point)].result.mask);
}

// Nobody would know of the masks that were stored before.
TEST_F(SolverRunnerTest, ASweepThatCannotStoreItsBestMasksLeavesNone) {
  Open(1 << 20);
  for (const double sparsity : {0.5, 0.75}) {
    job_.spec.sweep.push_back(
        {.pattern = Pattern::PerRow(sparsity), .options = {.method = Method::kWanda}});
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  faults_->FailWritesAfter(kMaskBytes, DiskFull());
  EXPECT_THAT(Run(*inputs), StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_EQ(store_->usage().tensors, 2) << "the inputs";
}

TEST_F(SolverRunnerTest, AWarmStartIsForSparseFwAlone) {
  Open(1 << 20);
  job_.spec.warm_saliency = job_.spec.weight;
  for (const Method method : {Method::kSparseGpt, Method::kWanda}) {
    job_.spec.options.method = method;
    EXPECT_THAT(
        runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked),
        StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID",
                 "warm_start.saliency must be empty for a method other than SPARSEFW; got " +
                     job_.spec.weight));
    EXPECT_THAT(runner_->Check(job_.spec, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID"));
  }
  // A sweep may use it in some of its points.
  for (const Method method : {Method::kWanda, Method::kSparseFw}) {
    job_.spec.sweep.push_back({.pattern = Pattern::PerRow(0.5), .options = {.method = method}});
  }
  EXPECT_THAT(runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked),
              StatusIs(absl::StatusCode::kInvalidArgument, "WRONG_TENSOR_KIND"));
}

// Only a pass over the values would notice: nobody changes them in earnest.
TEST_F(SolverRunnerTest, ValuesAreCheckedOnceForAllJobsAndSolves) {
  Open(1 << 20);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto first, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  Overwrite(job_.spec.gram, 1, -5);  // asymmetric and indefinite from now on
  EXPECT_THAT(runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked), IsOk());
  EXPECT_THAT(Run(*first), IsOk());
  for (const Method method : {Method::kMagnitude, Method::kWanda}) {
    job_.spec.sweep.push_back({.pattern = Pattern::PerRow(0.5), .options = {.method = method}});
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      auto sweep, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobResult result, Run(*sweep));
  ASSERT_EQ(result.sweep.size(), 2U);
  for (const SweepOutcome& outcome : result.sweep) EXPECT_THAT(outcome.error, IsOk());
}

TEST_F(SolverRunnerTest, ABadTensorIsRefusedForEveryJobAlike) {
  Open(1 << 20);
  Overwrite(job_.spec.gram, 1, -5);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked),
                StatusIs(absl::StatusCode::kInvalidArgument, "GRAM_ASYMMETRIC", "gram[0, 1]=-5"));
  }
}

TEST_F(SolverRunnerTest, AJobBeyondTheWorkingMemoryIsRefusedWithBothNumbers) {
  Open(1 << 20, {.backends = {}, .default_backends = {}, .solve_memory_bytes = 100});
  const int64_t needed = (*FindBackend("cpu"))->EstimateHostBytes(kRows, kCols, {});
  EXPECT_THAT(
      runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked),
      StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
               "about " + std::to_string(needed) + " bytes", "running jobs may use 100 together"));
  EXPECT_EQ(store_->usage().used_bytes, kInputBytes);
}

// Until all points have ended.
TEST_F(SolverRunnerTest, TheMasksThatASweepKeepsAreReserved) {
  Open(1 << 20);
  const auto needed = [this](bool of_one_pattern) {
    job_.spec.sweep.clear();
    for (int i = 0; i < 64; ++i) {
      job_.spec.sweep.push_back({.pattern = Pattern::PerRow(of_one_pattern ? 0.5 : i / 64.0),
                                 .options = {.method = Method::kWanda}});
    }
    const auto inputs = runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked);
    EXPECT_THAT(inputs, IsOk());
    return inputs.ok() ? (*inputs)->need.working_bytes : 0;
  };
  EXPECT_EQ(needed(false), needed(true) + 63 * kMaskBytes);
}

// The time that its results are kept for begins at its end, however long it runs.
TEST_F(SolverRunnerTest, ResultsDoNotExpireBeforeTheirJob) {
  Open(1 << 20);
  job_.spec.result_ttl = absl::Seconds(60);
  job_.spec.sweep_keep = SweepKeep::kAll;
  for (const Method method : {Method::kWanda, Method::kSparseFw}) {
    job_.spec.sweep.push_back({.pattern = Pattern::PerRow(0.5), .options = {.method = method}});
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
  bool reported = false;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const JobResult result, Run(*inputs, {}, [&](const ProgressReport& report) {
        if (report.sweep_point != 1 || std::exchange(reported, true)) return;
        time_.Advance(absl::Hours(24 * 10'000));  // beyond the real time too
        store_->CollectGarbage();
      }));
  EXPECT_TRUE(reported);
  time_.Advance(absl::Hours(1));
  store_->CollectGarbage();
  for (const SweepOutcome& outcome : result.sweep) {
    EXPECT_THAT(store_->Acquire(outcome.result.mask), IsOk());
  }
  EXPECT_THAT(store_->Acquire(result.pruned_weight), IsOk());
}

// Placement::deadline is the only deadline of a run, whatever the options say.
TEST_F(SolverRunnerTest, TheJobsDeadlineLimitsEveryPointOfASweep) {
  Open(1 << 20);
  job_.spec.return_pruned_weight = false;
  job_.spec.options.method = Method::kSparseFw;
  job_.spec.options.iterations = 5;
  job_.spec.options.deadline = absl::InfinitePast();
  job_.spec.sweep = {{job_.spec.pattern, job_.spec.options},
                     {Pattern::PerRow(0.25), job_.spec.options}};
  for (const bool passed : {false, true}) {
    Placement placement;
    placement.deadline = passed ? absl::InfinitePast() : absl::InfiniteFuture();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const auto inputs, runner_->Prepare(job_.spec, Owner(), JobRunner::Values::kUnchecked));
    const absl::StatusOr<JobResult> result = Run(*inputs, placement);
    if (passed) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
      continue;
    }
    ASSERT_THAT(result, IsOk());
    for (const SweepOutcome& outcome : result->sweep) {
      ASSERT_THAT(outcome.error, IsOk());
      EXPECT_EQ(outcome.result.solve.stop_cause, StopCause::kIterations);
    }
  }
}

}  // namespace
}  // namespace sparsefw::server
