// A sink that keeps every checkpoint, and comparisons of what solves say.
#ifndef SPARSEFW_TESTS_CORE_SOLVER_MEMORY_CHECKPOINTS_H_
#define SPARSEFW_TESTS_CORE_SOLVER_MEMORY_CHECKPOINTS_H_

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/checkpoint.h"
#include "sparsefw/solver.h"

namespace sparsefw::testing {

class MemorySink final : public CheckpointSink {
 public:
  bool Due(const CheckpointTiming& timing) override {
    asked.push_back(timing);
    return due;
  }
  absl::Status Begin(const CheckpointInfo& info) override {
    EXPECT_FALSE(open_) << "two checkpoints at once";
    open_ = true;
    pending_.clear();
    infos.push_back(info);
    return fail("begin");
  }
  absl::Status Write(std::span<const std::byte> piece) override {
    EXPECT_TRUE(open_);
    EXPECT_LE(piece.size(), size_t{1} << 20);
    pending_.insert(pending_.end(), piece.begin(), piece.end());
    return fail("write");
  }
  absl::Status Commit() override {
    EXPECT_TRUE(open_);
    if (absl::Status status = fail("commit"); !status.ok()) return status;
    open_ = false;
    checkpoints.push_back(pending_);
    if (on_commit) on_commit(checkpoints.size());
    return absl::OkStatus();
  }
  void Abandon() override {
    EXPECT_TRUE(open_);
    open_ = false;
    ++abandoned;
  }

  bool due = true;
  std::function<absl::Status(const char* call)> fail = [](const char*) { return absl::OkStatus(); };
  std::function<void(size_t count)> on_commit;
  std::vector<CheckpointTiming> asked;
  std::vector<CheckpointInfo> infos;
  std::vector<std::vector<std::byte>> checkpoints;
  int abandoned = 0;

 private:
  bool open_ = false;
  std::vector<std::byte> pending_;
};

// All but times.
inline void ExpectSameReport(const ProgressReport& a, const ProgressReport& b) {
  EXPECT_EQ(a.iteration, b.iteration);
  EXPECT_EQ(a.iterations_total, b.iterations_total);
  EXPECT_EQ(a.relaxed_loss, b.relaxed_loss);
  EXPECT_EQ(a.gap, b.gap);
  EXPECT_EQ(a.step_size, b.step_size);
  EXPECT_EQ(a.threshold_residual, b.threshold_residual);
  EXPECT_EQ(a.rounded_loss, b.rounded_loss);
  EXPECT_EQ(a.best_loss, b.best_loss);
  EXPECT_EQ(a.warm_start_loss, b.warm_start_loss);
  EXPECT_EQ(a.lower_bound, b.lower_bound);
  EXPECT_EQ(a.swaps, b.swaps);
  EXPECT_EQ(a.sweep_point, b.sweep_point);
}

inline void ExpectSameResult(const SolveResult& a, const SolveResult& b) {
  EXPECT_EQ(a.mask, b.mask);
  ASSERT_EQ(a.weights.size(), b.weights.size());
  if (a.weights.size() > 0) {
    EXPECT_EQ(std::memcmp(a.weights.data(), b.weights.data(), a.weights.span().size_bytes()), 0);
  }
  EXPECT_EQ(a.kept_count, b.kept_count);
  EXPECT_EQ(a.full_loss, b.full_loss);
  EXPECT_EQ(a.warm_start_loss, b.warm_start_loss);
  EXPECT_EQ(a.relaxed_loss, b.relaxed_loss);
  EXPECT_EQ(a.rounded_loss, b.rounded_loss);
  EXPECT_EQ(a.final_loss, b.final_loss);
  EXPECT_EQ(a.reconstructed_loss, b.reconstructed_loss);
  EXPECT_EQ(a.damping, b.damping);
  EXPECT_EQ(a.lower_bound, b.lower_bound);
  EXPECT_EQ(a.relative_reduction, b.relative_reduction);
  EXPECT_EQ(a.iterations, b.iterations);
  EXPECT_EQ(a.swaps, b.swaps);
  EXPECT_EQ(a.drift, b.drift);
  EXPECT_EQ(a.screening.iterations, b.screening.iterations);
  EXPECT_EQ(a.screening.active_share, b.screening.active_share);
  EXPECT_EQ(a.stop_cause, b.stop_cause);
  EXPECT_EQ(a.candidate, b.candidate);
}

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_CORE_SOLVER_MEMORY_CHECKPOINTS_H_
