// The threads of one engine, its stop signal and its deadline.
#ifndef SPARSEFW_CORE_SRC_PARALLEL_WORKERS_H_
#define SPARSEFW_CORE_SRC_PARALLEL_WORKERS_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/linalg/blas.h"
#include "core/src/parallel/parallel.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::cpu {

// An arena of its own, so that several engines of one process neither steal
// each other's tasks nor start more threads than they were given.
//
// Every call returns Cancelled when the stop signal is set or the deadline has
// passed, even if it came too late to leave anything out. Exceptions of a body
// reach the caller.
class Workers {
 public:
  // threads 0: all cores. stop may be null; not owned. past_deadline is called
  // on any thread, before every body; empty: there is no deadline.
  Workers(int threads, const StopSignal* stop, std::function<bool()> past_deadline = {})
      : arena_(threads), stop_(stop), past_deadline_(std::move(past_deadline)) {}

  int threads() const { return arena_.threads(); }
  bool stopped() const {
    return (stop_ != nullptr && stop_->requested()) || (past_deadline_ && past_deadline_());
  }

  // Calls body(0) .. body(count - 1), concurrently and in no order; results
  // must not depend on either. Once stopped the remaining calls are left out.
  absl::Status ForEach(int64_t count, absl::FunctionRef<void(int64_t)> body);

  absl::Status Gemm(const GemmArgs<float>& args);
  absl::Status Gemm(const GemmArgs<double>& args);

 private:
  absl::Status Outcome() const;
  const Arena arena_;
  const StopSignal* const stop_;
  const std::function<bool()> past_deadline_;
};

// Consecutive rows, a few at a time: the unit of parallel work. It depends on
// the shape alone, never on the number of threads, so that sums combined block
// by block are the same for any number of threads.
struct RowBlocks {
  int64_t rows = 0;
  int64_t rows_per_block = 1;

  int64_t count() const { return (rows + rows_per_block - 1) / rows_per_block; }
  int64_t begin(int64_t block) const { return block * rows_per_block; }
  int64_t end(int64_t block) const {
    const int64_t next = begin(block + 1);
    return next < rows ? next : rows;
  }
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_PARALLEL_WORKERS_H_
