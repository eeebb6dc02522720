// Which of a sweep's results are kept, and which of them is that of the job.
#include "server/runner/sweep_results.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "sparsefw/reason.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

class SweepResultsTest : public StoreFixture {
 protected:
  static constexpr int64_t kRows = 4;
  static constexpr int64_t kCols = 16;
  static constexpr int64_t kMaskBytes = kRows * kCols / 8;

  void SetUp() override {
    StoreFixture::SetUp();
    const std::vector<float> weight(kRows * kCols, 1.0F);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const TensorInfo stored,
        store_->Put({TensorKind::kWeight, DType::kF32, kRows, kCols, 0},
                    std::as_bytes(std::span(weight)), {}, absl::InfiniteFuture()));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(weight_, store_->Acquire(stored.name));
    job_.name = "jobs/1";
  }
  // A sweep over these patterns, each a sparsity.
  SweepResults& Begin(const std::vector<double>& sparsities) {
    for (const double sparsity : sparsities) {
      job_.spec.sweep.push_back({Pattern::PerRow(sparsity), {}});
    }
    results_.emplace(store_.get(), job_, *weight_, nullptr, job_.spec.sweep, report_);
    return *results_;
  }
  static SolveResult Solved(double loss, int64_t weight_rows = 0) {
    SolveResult solved;
    solved.final_loss = solved.reconstructed_loss = loss;
    solved.mask = Mask(kRows, kCols);
    if (weight_rows > 0) solved.weights = Matrix<float>(weight_rows, kCols);
    return solved;
  }
  static absl::Status Failed(const std::string& what) { return absl::InternalError(what); }
  static int64_t AddressSpace() {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * 4096;
  }

  const SweepResults::ReportFunction report_ = [](const ProgressReport&) {};
  std::shared_ptr<const TensorHandle> weight_;
  Job job_;
  std::optional<SweepResults> results_;
};

TEST_F(SweepResultsTest, TheResultIsOfTheFirstPatternThoughAnotherWasFirst) {
  SweepResults& results = Begin({0.5, 0.25, 0.5});
  SPARSEFW_ASSERT_OK(results.OnResult(0, Failed("no memory")));
  SPARSEFW_ASSERT_OK(results.OnResult(1, Solved(1)));
  SPARSEFW_ASSERT_OK(results.OnResult(2, Solved(2)));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobResult result, results.Finish());
  EXPECT_EQ(result.best_point, 2);
  EXPECT_EQ(result.mask, result.sweep[2].result.mask);
}

TEST_F(SweepResultsTest, WithoutAnyOfTheFirstPatternItIsOfTheNext) {
  SweepResults& results = Begin({0.5, 0.25, 0.75, 0.25});
  SPARSEFW_ASSERT_OK(results.OnResult(0, Failed("no memory")));
  SPARSEFW_ASSERT_OK(results.OnResult(1, Solved(3)));
  SPARSEFW_ASSERT_OK(results.OnResult(2, Solved(1)));
  SPARSEFW_ASSERT_OK(results.OnResult(3, Solved(2)));
  EXPECT_EQ(results.Finish()->best_point, 3);
}

// Its job is cancelled, late, or runs again: it has not failed by itself.
TEST_F(SweepResultsTest, AStopCountsBeforeTheErrorsOfEarlierPoints) {
  const absl::Status late = absl::DeadlineExceededError("too late");
  const absl::Status stopped = absl::CancelledError("stopped");
  const std::vector<std::pair<std::vector<absl::Status>, absl::Status>> cases = {
      {{Failed("first"), Failed("second")}, Failed("first")},
      {{Failed("first"), late}, late},
      {{Failed("first"), late, stopped}, stopped},
  };
  for (const auto& [errors, expected] : cases) {
    job_.spec.sweep.clear();
    SweepResults& results = Begin(std::vector<double>(errors.size(), 0.5));
    for (size_t i = 0; i < errors.size(); ++i) SPARSEFW_ASSERT_OK(results.OnResult(i, errors[i]));
    EXPECT_EQ(results.Finish().status(), expected);
  }
}

TEST_F(SweepResultsTest, NewWeightsThatCannotBeTheResultAreNotKept) {
  constexpr int kPatterns = 48;
  constexpr int64_t kWeightRows = int64_t{1} << 18;  // 16 MiB
  constexpr int64_t kMatrixBytes = kWeightRows * kCols * 4;
  for (const bool wanted : {false, true}) {
    job_.spec.return_pruned_weight = wanted;
    job_.spec.sweep.clear();
    std::vector<double> sparsities;
    for (int i = 0; i < kPatterns; ++i) sparsities.push_back(0.5 + i / 100.0);
    SweepResults& results = Begin(sparsities);
    const int64_t before = AddressSpace();
    for (size_t i = 0; i < kPatterns; ++i) {
      // The first point fails: the second could be the result until the end.
      if (i == 0) {
        SPARSEFW_ASSERT_OK(results.OnResult(i, Failed("no memory")));
      } else {
        SPARSEFW_ASSERT_OK(results.OnResult(i, Solved(1, kWeightRows)));
      }
    }
    EXPECT_LT(AddressSpace() - before, kPatterns / 4 * kMatrixBytes) << "wanted: " << wanted;
  }
}

TEST_F(SweepResultsTest, WhatIsKeptIsCounted) {
  JobSpec spec;
  EXPECT_EQ(KeptBytes(spec, kRows, kCols), 0);
  for (const double sparsity : {0.5, 0.25, 0.5}) {
    spec.sweep.push_back({Pattern::PerRow(sparsity), {}});
  }
  EXPECT_EQ(KeptBytes(spec, kRows, kCols), 2 * kMaskBytes);
  spec.return_pruned_weight = true;
  EXPECT_EQ(KeptBytes(spec, kRows, kCols), 2 * kMaskBytes);
  spec.sweep[1].options.reconstruct = true;
  EXPECT_EQ(KeptBytes(spec, kRows, kCols), 2 * kMaskBytes + kRows * kCols * 4);
  spec.sweep_keep = SweepKeep::kAll;
  EXPECT_EQ(KeptBytes(spec, kRows, kCols), kMaskBytes + kRows * kCols * 4);
  spec.return_pruned_weight = false;
  EXPECT_EQ(KeptBytes(spec, kRows, kCols), 0);
}

}  // namespace
}  // namespace sparsefw::server
