// Fibers that switch to each other, with AddressSanitizer told of it.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_FIBER_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_FIBER_H_

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace cuda_on_host {

// Where a fiber goes on when it is switched to, and its stack.
struct Fiber {
  boost::context::fiber context;
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's, while the fiber does not run
};

// The fibers of one thread of the host. They all run `loop`, which returns only
// when `stopping` says so after a switch to it.
class FiberPool {
 public:
  // On the thread's own stack, as the destructor.
  explicit FiberPool(std::function<void()> loop);
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool();

  Fiber* Create();
  // Leaves the fiber (or the thread's own stack) that runs; returns when that is switched to again.
  void SwitchTo(Fiber* to);

  Fiber* running() const { return running_; }
  // The thread's own stack.
  Fiber* main() { return &main_; }
  bool stopping() const { return stopping_; }

 private:
  boost::context::fiber FiberMain(Fiber* self, boost::context::fiber&& from);

  Fiber main_;
  Fiber* running_ = &main_;
  Fiber* previous_ = nullptr;  // who switched to the one that runs
  bool stopping_ = false;
  const std::function<void()> loop_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace cuda_on_host

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_FIBER_H_
