#include "tests/cuda_on_host/fiber.h"

#include <boost/context/protected_fixedsize_stack.hpp>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_on_host {
namespace {

// Sanitizers make frames several times larger. Below is a page that faults.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

// AddressSanitizer must know which stack runs, or it takes a switch for a
// stack overflow. Functions entered between the two calls have their locals on
// the stack itself; later ones have them on a fake stack, which belongs to the
// fiber. `fake_stack`: where to keep the one that is left; null to drop it.
void StartSwitch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, to.stack_bottom, to.stack_bytes);
#endif
}

// `from`: filled with the stack that was left, unless null.
void FinishSwitch([[maybe_unused]] void* fake_stack, [[maybe_unused]] Fiber* from) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, from == nullptr ? nullptr : &from->stack_bottom,
                                  from == nullptr ? nullptr : &from->stack_bytes);
#endif
}

// Frames that never return leave marks on a stack that is to be unmapped.
void ForgetStack([[maybe_unused]] const Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack_bottom, fiber.stack_bytes);
#endif
}

// Boost's allocator, which tells the fiber where its stack lies.
class Stack {
 public:
  explicit Stack(Fiber* fiber) : fiber_(fiber) {}
  boost::context::stack_context allocate() {
    boost::context::stack_context context = allocator_.allocate();
    fiber_->stack_bytes = context.size;
    fiber_->stack_bottom = static_cast<char*>(context.sp) - context.size;
    return context;
  }
  void deallocate(boost::context::stack_context& context) noexcept {
    allocator_.deallocate(context);
  }

 private:
  Fiber* fiber_;
  boost::context::protected_fixedsize_stack allocator_{kStackBytes};
};

}  // namespace

FiberPool::FiberPool(std::function<void()> loop) : loop_(std::move(loop)) {
  // A switch to nowhere and back tells where the thread's own stack lies.
  void* fake_stack = nullptr;
  StartSwitch(&fake_stack, Fiber());
  FinishSwitch(fake_stack, &main_);
  StartSwitch(&fake_stack, main_);
  FinishSwitch(fake_stack, nullptr);
}

Fiber* FiberPool::Create() {
  Fiber* fiber = fibers_.emplace_back(std::make_unique<Fiber>()).get();
  // Boost enters the fiber at once, for a moment: not on this one's fake stack.
  void* fake_stack = nullptr;
  StartSwitch(&fake_stack, *running_);
  fiber->context = boost::context::fiber(
      std::allocator_arg, Stack(fiber),
      [this, fiber](boost::context::fiber&& from) { return FiberMain(fiber, std::move(from)); });
  FinishSwitch(fake_stack, nullptr);
  return fiber;
}

boost::context::fiber FiberPool::FiberMain(Fiber* self, boost::context::fiber&& from) {
  previous_->context = std::move(from);
  FinishSwitch(nullptr, nullptr);
  loop_();
  // Only the pool's destructor makes the loop return.
  ForgetStack(*self);
  previous_ = self;
  running_ = &main_;
  StartSwitch(nullptr, main_);
  return std::move(main_.context);
}

void FiberPool::SwitchTo(Fiber* to) {
  Fiber* const self = running_;
  previous_ = self;
  running_ = to;
  StartSwitch(&self->fake_stack, *to);
  boost::context::fiber from = std::move(to->context).resume();
  FinishSwitch(self->fake_stack, nullptr);
  previous_->context = std::move(from);
}

FiberPool::~FiberPool() {
  stopping_ = true;
  for (const std::unique_ptr<Fiber>& fiber : fibers_) SwitchTo(fiber.get());
}

}  // namespace cuda_on_host
