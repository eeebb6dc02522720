// The threads of one SparseGPT run.
#ifndef SPARSEFW_CORE_SRC_SPARSEGPT_LIMITED_WORKERS_H_
#define SPARSEFW_CORE_SRC_SPARSEGPT_LIMITED_WORKERS_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/blas.h"
#include "core/src/cpu/workers.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::sparsegpt {

// What ends a run early.
struct RunLimits {
  int threads = 0;                   // 0: all cores
  const StopSignal* stop = nullptr;  // may be null; not owned
  // Called on any thread, before every piece of work; may be empty.
  std::function<bool()> past_deadline = {};
};

// Workers that end at a deadline just as at the caller's stop signal. Both are
// looked at before every piece of work, which takes some 20 ms at most.
//
// Every call returns Cancelled once either is reached, and from then on.
class LimitedWorkers {
 public:
  explicit LimitedWorkers(const RunLimits& limits)
      : limits_(limits), workers_(limits.threads, &halt_) {}

  // As cpu::Workers.
  absl::Status ForEach(int64_t count, absl::FunctionRef<void(int64_t)> body);
  absl::Status Gemm(const GemmArgs<double>& args);

  // For products inside a body of ForEach.
  const StopSignal* halt() const { return &halt_; }

 private:
  bool Halted();

  const RunLimits limits_;
  StopSignal halt_;
  cpu::Workers workers_;
};

}  // namespace sparsefw::sparsegpt

#endif  // SPARSEFW_CORE_SRC_SPARSEGPT_LIMITED_WORKERS_H_
