// Built without ThreadSanitizer: see parallel.h.
#include "core/src/parallel/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#ifdef SPARSEFW_THREAD_SANITIZER
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace sparsefw {
namespace {

// What the caller wrote is seen by every body; what the bodies wrote is seen
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
  constexpr size_t kMostThreads = 1024;
  static const tbb::global_control allowed(tbb::global_control::max_allowed_parallelism,
                                           kMostThreads);
}

// Of the innermost Arena::Execute on this thread.
thread_local const StopSignal* current_stop = nullptr;

struct Stopped {};

void ThrowIfStopped(const StopSignal* stop) {
  if (stop != nullptr && stop->requested()) throw Stopped();
}

}  // namespace

void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  const int64_t blocks = (count + grain - 1) / grain;
  const StopSignal* const stop = current_stop;
  ThrowIfStopped(stop);
  if (blocks == 1) return body(0, count);
  HappensBefore order;
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, blocks, 1),
                    [&](const tbb::blocked_range<int64_t>& range) {
                      RunBody(order, [&] {
                        for (int64_t block = range.begin(); block != range.end(); ++block) {
                          ThrowIfStopped(stop);
                          body(block * grain, std::min(count, (block + 1) * grain));
                        }
                      });
                    });
}

struct Arena::Impl {
  explicit Impl(int threads) : arena(threads == 0 ? tbb::task_arena::automatic : threads) {
    AllowThreads(threads);
  }
  tbb::task_arena arena;
};

Arena::Arena(int threads) : impl_(std::make_unique<Impl>(threads)) {}
Arena::~Arena() = default;

void Arena::Execute(absl::FunctionRef<void()> body) const {
  HappensBefore order;
  impl_->arena.execute([&] { RunBody(order, body); });
}

bool Arena::Execute(const StopSignal* stop, absl::FunctionRef<void()> body) const {
  bool finished = true;
  Execute([&] {
    struct Scope {
      explicit Scope(const StopSignal* inner) : outer(current_stop) { current_stop = inner; }
      ~Scope() { current_stop = outer; }
      const StopSignal* outer;
    };
    const Scope scope(stop);
    try {
      body();
    } catch (const Stopped&) {
      finished = false;
    }
  });
  return finished;
}

int Arena::threads() const { return impl_->arena.max_concurrency(); }

}  // namespace sparsefw
