// The joint search of one batch of rows after another, from the host.
#ifndef SPARSEFW_CORE_SRC_CUDA_JOINT_BATCH_SEARCH_H_
#define SPARSEFW_CORE_SRC_CUDA_JOINT_BATCH_SEARCH_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/joint/joint_rows.h"
#include "core/src/joint/row_window.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw::cuda {

// Says when to stop; once it has, it always does. Not thread-safe.
class SearchBudget {
 public:
  SearchBudget(const ExecutionContext& context, const std::function<bool()>& out_of_time)
      : context_(context), out_of_time_(out_of_time) {}

  bool Spent() {
    spent_ = spent_ || context_.stopped() || (out_of_time_ && out_of_time_());
    return spent_;
  }

 private:
  const ExecutionContext& context_;
  const std::function<bool()>& out_of_time_;
  bool spent_ = false;
};

// What it is given must outlive it. Not thread-safe.
template <typename Real>
class BatchSearch {
 public:
  // layer: its gram is H. products [rows, stride]: b of every row, on the device.
  BatchSearch(const DeviceLayer<Real>& layer, const double* products, JointRows& rows,
              SearchBudget& budget, const ParallelContext& host, const ExecutionContext& context)
      : layer_(layer),
        products_(products),
        rows_(rows),
        budget_(budget),
        host_(host),
        context_(context) {}

  // Memory: BatchBytes on the device.
  absl::Status Allocate();

  // Builds the tableaus of the first rows of `order`, as many as there is memory for.
  absl::Status Begin(const std::vector<RowWindow>& windows, std::span<const int64_t> order);
  // The same, searches them, and takes what it finds. Returns how many.
  absl::StatusOr<int64_t> Run(const std::vector<RowWindow>& windows,
                              std::span<const int64_t> order);

  // What was begun last.
  const JointBatch<Real>& batch() const { return batch_; }

  // Whether all that was searched ended because no exchange pays.
  bool converged() const { return converged_; }

 private:
  void Size(const std::vector<RowWindow>& windows, std::span<const int64_t> order);
  absl::Status Upload(const std::vector<RowWindow>& windows, std::span<const int64_t> order);
  absl::StatusOr<bool> Exchange();
  absl::StatusOr<int64_t> Admit(int64_t first);
  absl::Status Take(std::span<const int64_t> order);
  absl::StatusOr<int> Counter();

  const DeviceLayer<Real>& layer_;
  const double* const products_;
  JointRows& rows_;
  SearchBudget& budget_;
  const ParallelContext& host_;
  const ExecutionContext& context_;
  DeviceBuffer<unsigned char> memory_;
  JointBatch<Real> batch_;
  bool converged_ = true;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_JOINT_BATCH_SEARCH_H_
