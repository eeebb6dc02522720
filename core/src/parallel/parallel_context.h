// Parallel loops, and what limits them: threads, a stop signal, a deadline.
//
// The only users of oneTBB. ThreadSanitizer cannot see the synchronisation
// inside Debian's uninstrumented libtbb and reports races in every loop that
// uses TBB's headers. parallel_context.cc, the one file that includes them, is
// therefore built without it and tells it what happens before what.
#ifndef SPARSEFW_CORE_SRC_PARALLEL_PARALLEL_CONTEXT_H_
#define SPARSEFW_CORE_SRC_PARALLEL_PARALLEL_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw {

// More threads than any machine has, and fewer than end the process.
inline constexpr int kMostThreads = 1024;
// Errors: InvalidArgument (OPTION_INVALID)
absl::Status ValidateThreads(int threads);

// Calls body(begin, end) for the blocks [0, grain), [grain, 2*grain), ... of
// [0, count), the last one possibly shorter, and returns when all are done.
//
// The blocks depend on count and grain only, never on the threads: a reduction
// that keeps one partial result a block and adds them in order is the same bit
// for bit on any number of threads.
//
// Threads: those of the innermost ParallelContext::Run that it is called in,
//          whose limits end it between two blocks; else of TBB's default arena,
//          without limits. Blocks run in any order, at the same time. May be
//          nested. What a body throws is thrown here; blocks not begun are
//          skipped.
void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

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

// The threads and limits of one solve or accumulation. It has an arena of its
// own, so that several of one process neither steal each other's tasks nor start
// more threads than they were given.
//
// Every method returns Cancelled when the stop signal is set or the deadline has
// passed, even if that came too late to leave anything out; what the body was to
// write is then unfinished. Exceptions of a body reach the caller.
//
// Threads: safe to call concurrently.
class ParallelContext {
 public:
  // threads 0: all cores. stop may be null; not owned. past_deadline is called
  // on any thread, before every block; empty: there is no deadline.
  explicit ParallelContext(int threads, const StopSignal* stop = nullptr,
                           std::function<bool()> past_deadline = {});
  ~ParallelContext();
  ParallelContext(const ParallelContext&) = delete;
  ParallelContext& operator=(const ParallelContext&) = delete;

  int threads() const;
  bool stopped() const {
    return (stop_ != nullptr && stop_->requested()) || (past_deadline_ && past_deadline_());
  }
  absl::Status CheckStopped() const;

  // Runs `body` here or on a thread of the arena, and waits for it. Once stopped,
  // the loops that the body runs, on whatever thread, begin no further block, and
  // the body is left at the loop it is in.
  absl::Status Run(absl::FunctionRef<absl::Status()> body) const;

  // Calls body(0) .. body(count - 1), concurrently and in no order; results
  // must not depend on either. Once stopped the remaining calls are left out.
  absl::Status ForEach(int64_t count, absl::FunctionRef<void(int64_t)> body) const;
  // The same for every row, block by block.
  absl::Status ForEachRow(const RowBlocks& blocks, absl::FunctionRef<void(int64_t)> body) const;

 private:
  struct Arena;
  const std::unique_ptr<Arena> arena_;
  const StopSignal* const stop_;
  const std::function<bool()> past_deadline_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_PARALLEL_PARALLEL_CONTEXT_H_
