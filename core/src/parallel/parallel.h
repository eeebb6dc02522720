// Parallel loops and thread arenas: the only door to oneTBB.
//
// Why a door: ThreadSanitizer cannot see the synchronisation inside Debian's
// uninstrumented libtbb and reports races in every loop that uses TBB's
// headers. parallel.cc, the one file that includes them, is therefore built
// without it, and the functions below tell it what happens before what.
#ifndef SPARSEFW_CORE_SRC_PARALLEL_PARALLEL_H_
#define SPARSEFW_CORE_SRC_PARALLEL_PARALLEL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw {

// Calls body(begin, end) for the blocks [0, grain), [grain, 2*grain), ... of
// [0, count), the last one possibly shorter, and returns when all are done.
//
// The blocks depend on count and grain only, never on the threads: a reduction
// that keeps one partial result a block and adds them in order is the same bit
// for bit on any number of threads.
//
// Threads: runs in the calling thread's arena (Arena::Execute, else TBB's
//          default). Blocks run in any order, at the same time. May be nested.
//          What a body throws is thrown here; blocks not begun are skipped.
void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

// A limit on the threads that the loops of one job may use.
class Arena {
 public:
  explicit Arena(int threads);  // 0: all cores
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Runs `body` here or on a thread of the arena, and waits for it.
  void Execute(absl::FunctionRef<void()> body) const;
  // The same, but once the signal is set (null: never) the loops that body
  // itself runs begin no further block, and body is left by an exception from
  // the loop it is in. Returns false then: what body was to write is unfinished.
  bool Execute(const StopSignal* stop, absl::FunctionRef<void()> body) const;
  int threads() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_PARALLEL_PARALLEL_H_
