// Built without ThreadSanitizer: see parallel_context.h.
#include "core/src/parallel/parallel_context.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <utility>

#include "sparsefw/reason.h"

#ifdef SPARSEFW_THREAD_SANITIZER
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace sparsefw {
namespace {

// Every body sees the caller's writes; the writes of the bodies are seen
// by the caller afterwards. Does nothing outside ThreadSanitizer builds: there
// TBB itself orders the two.
class HappensBefore {
 public:
#ifdef SPARSEFW_THREAD_SANITIZER
  HappensBefore() { __tsan_release(&start_); }
  ~HappensBefore() { __tsan_acquire(&end_); }
  void BodyBegins() { __tsan_acquire(&start_); }
  void BodyEnds() { __tsan_release(&end_); }

 private:
  char start_ = 0;
  char end_ = 0;
#else
  void BodyBegins() {}
  void BodyEnds() {}
#endif
};

template <typename Body>
void RunBody(HappensBefore& order, const Body& body) {
  struct Scope {
    explicit Scope(HappensBefore& scope_order) : order(scope_order) { order.BodyBegins(); }
    ~Scope() { order.BodyEnds(); }
    HappensBefore& order;
  };
  const Scope scope(order);
  body();
}

// TBB has one pool of workers for the whole program, as large as the machine
// unless told otherwise, and writes a warning to standard error when an arena
// wants more. Who asks for more threads than there are cores gets them.
void AllowThreads(int threads) {
  if (threads <= tbb::this_task_arena::max_concurrency()) return;
  static const tbb::global_control allowed(tbb::global_control::max_allowed_parallelism,
                                           size_t{kMostThreads});
}

// The context of the innermost ParallelContext::Run around what this thread executes.
thread_local const ParallelContext* current_context = nullptr;

class CurrentContext {
 public:
  explicit CurrentContext(const ParallelContext* context) : outer_(current_context) {
    current_context = context;
  }
  ~CurrentContext() { current_context = outer_; }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const ParallelContext* const outer_;
};

// Leaves the loops of a context that was stopped; caught by its Run.
struct Stopped {};

void ThrowIfStopped(const ParallelContext* context) {
  if (context != nullptr && context->stopped()) throw Stopped();
}

}  // namespace

absl::Status ValidateThreads(int threads) {
  if (threads >= 0 && threads <= kMostThreads) return absl::OkStatus();
  return Invalid("OPTION_INVALID", "threads must be in [0, %d]; got threads=%d", kMostThreads,
                 threads);
}

void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  const int64_t blocks = (count + grain - 1) / grain;
  const ParallelContext* const context = current_context;
  if (blocks == 1) {
    ThrowIfStopped(context);
    return body(0, count);
  }
  HappensBefore order;
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, blocks, 1),
                    [&](const tbb::blocked_range<int64_t>& range) {
                      const CurrentContext scope(context);
                      RunBody(order, [&] {
                        for (int64_t block = range.begin(); block != range.end(); ++block) {
                          ThrowIfStopped(context);
                          body(block * grain, std::min(count, (block + 1) * grain));
                        }
                      });
                    });
}

struct ParallelContext::Arena {
  explicit Arena(int threads) : arena(threads == 0 ? tbb::task_arena::automatic : threads) {
    AllowThreads(threads);
  }
  tbb::task_arena arena;
};

ParallelContext::ParallelContext(int threads, const StopSignal* stop,
                                 std::function<bool()> past_deadline)
    : arena_(std::make_unique<Arena>(threads)),
      stop_(stop),
      past_deadline_(std::move(past_deadline)) {}
ParallelContext::~ParallelContext() = default;

int ParallelContext::threads() const { return arena_->arena.max_concurrency(); }

absl::Status ParallelContext::CheckStopped() const {
  return stopped() ? absl::CancelledError("stopped, or past the deadline") : absl::OkStatus();
}

absl::Status ParallelContext::Run(absl::FunctionRef<absl::Status()> body) const {
  HappensBefore order;
  absl::Status status;
  arena_->arena.execute([&] {
    const CurrentContext scope(this);
    RunBody(order, [&] {
      try {
        status = body();
      } catch (const Stopped&) {
        status = absl::CancelledError("stopped, or past the deadline");
      }
    });
  });
  return status.ok() ? CheckStopped() : status;
}

absl::Status ParallelContext::ForEach(int64_t count, absl::FunctionRef<void(int64_t)> body) const {
  return Run([&] {
    ParallelFor(count, 1, [&](int64_t index, int64_t) { body(index); });
    return absl::OkStatus();
  });
}

absl::Status ParallelContext::ForEachRow(const RowBlocks& blocks,
                                         absl::FunctionRef<void(int64_t)> body) const {
  return ForEach(blocks.count(), [&](int64_t block) {
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) body(row);
  });
}

}  // namespace sparsefw
