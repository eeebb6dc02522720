#include "tests/cuda_on_host/block_runner.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "tests/cuda_on_host/runtime.h"

namespace cuda_on_host {
namespace {

bool BackwardAsked() {
  const char* order = std::getenv("SPARSEFW_CUDA_ON_HOST_ORDER");
  return order != nullptr && std::string_view(order) == "backward";
}

// Coordinates of number `at` in `size`, x fastest.
uint3 Coordinates(uint64_t at, const dim3& size) {
  uint3 index;
  index.x = static_cast<unsigned>(at % size.x);
  index.y = static_cast<unsigned>(at / size.x % size.y);
  index.z = static_cast<unsigned>(at / size.x / size.y);
  return index;
}

}  // namespace

BlockRunner& BlockRunner::OfThisThread() {
  static thread_local BlockRunner runner;
  return runner;
}

void BlockRunner::Run(const LaunchShape& shape, const std::function<void()>& thread) {
  if (body_ != nullptr) Die("a kernel launches a kernel, which is not emulated");
  shape_ = shape;
  body_ = &thread;
  threads_ = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
  backward_ = BackwardAsked();
  blocks_ = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  blocks_done_ = 0;
  for (int i = 0; i < threads_; ++i) {
    thread_[static_cast<size_t>(i)].index = Coordinates(static_cast<uint64_t>(i), shape.block);
  }
  gridDim = shape.grid;
  blockDim = shape.block;

  OpenDynamicShared(shape.dynamic_bytes);
  StartBlock();
  SwitchTo(TakeNextReady());
  CloseDynamicShared();
  body_ = nullptr;
}

void BlockRunner::StartBlock() {
  const uint64_t at = backward_ ? blocks_ - 1 - blocks_done_ : blocks_done_;
  blockIdx = Coordinates(at, shape_.grid);
  live_ = threads_;
  at_barrier_ = 0;
  for (int i = 0; i < threads_; ++i) {
    Thread& thread = thread_[static_cast<size_t>(i)];
    thread.state = State::kRuns;
    thread.fiber = nullptr;
  }
  for (int first = 0; first < threads_; first += kWarpLanes) {
    const int lanes = std::min(kWarpLanes, threads_ - first);
    warp_[static_cast<size_t>(first / kWarpLanes)] = {
        lanes == kWarpLanes ? ~0u : (1u << lanes) - 1u, 0};
  }
  for (size_t word = 0; word < ready_.size(); ++word) {
    const int bits = std::clamp(threads_ - static_cast<int>(word) * 64, 0, 64);
    ready_[word] = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  }
  // So that the first thread taken is that of turn 0.
  current_ = TurnOf(threads_ - 1);
  // A block finds nothing in its memory, least of all the last block's.
  FillDynamicShared(shape_.dynamic_bytes);
}

bool BlockRunner::NextBlock() {
  if (++blocks_done_ == blocks_) return false;
  StartBlock();
  return true;
}

// Every fiber runs threads that have not started, as long as there are
// any, so that threads which never wait follow each other on one fiber.
void BlockRunner::FiberLoop() {
  while (!fibers_.stopping()) {
    (*body_)();
    ThreadReturned();
    Fiber* const self = fibers_.running();
    if (live_ == 0 && !NextBlock()) {
      idle_.push_back(self);
      fibers_.SwitchTo(fibers_.main());
      continue;
    }
    const int next = TakeNextReady();
    if (next < 0) DieOfDeadlock();
    Thread& thread = thread_[static_cast<size_t>(next)];
    if (thread.fiber == nullptr) {
      thread.fiber = self;
      Enter(next);
    } else {
      idle_.push_back(self);
      SwitchTo(next);
    }
  }
}

void BlockRunner::Enter(int thread) {
  current_ = thread;
  threadIdx = thread_[static_cast<size_t>(thread)].index;
}

void BlockRunner::ThreadReturned() {
  const int warp = current_ / kWarpLanes;
  Warp& mine = warp_[static_cast<size_t>(warp)];
  thread_[static_cast<size_t>(current_)].state = State::kReturned;
  mine.live &= ~(1u << lane());
  --live_;
  // The others no longer wait for this one: it may have been the last.
  if (at_barrier_ > 0 && at_barrier_ == live_) CompleteBarrier();
  for (unsigned waiting = mine.waiting; waiting != 0; waiting &= mine.waiting) {
    const int other = std::countr_zero(waiting);
    CompleteWarp(warp, thread_[static_cast<size_t>(warp * kWarpLanes + other)].mask);
    waiting &= ~(1u << other);
  }
}

void BlockRunner::MakeReady(int thread) {
  thread_[static_cast<size_t>(thread)].state = State::kRuns;
  const auto turn = static_cast<size_t>(TurnOf(thread));
  ready_[turn / 64] |= uint64_t{1} << (turn % 64);
}

// The thread that comes next after the current one, in turns; -1 when none can run.
int BlockRunner::TakeNextReady() {
  const auto words = static_cast<size_t>((threads_ + 63) / 64);
  int start = TurnOf(current_) + 1;
  if (start == threads_) start = 0;
  auto word = static_cast<size_t>(start / 64);
  uint64_t left_out = (uint64_t{1} << (start % 64)) - 1;
  // The first word comes again at the end, for the turns before `start`.
  for (size_t i = 0; i <= words; ++i) {
    const uint64_t bits = ready_[word] & ~left_out;
    if (bits != 0) {
      const int bit = std::countr_zero(bits);
      ready_[word] &= ~(uint64_t{1} << bit);
      return TurnOf(static_cast<int>(word) * 64 + bit);
    }
    left_out = 0;
    if (++word == words) word = 0;
  }
  return -1;
}

Fiber* BlockRunner::IdleFiber() {
  if (idle_.empty()) return fibers_.Create();
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void BlockRunner::SwitchTo(int thread) {
  Thread& to = thread_[static_cast<size_t>(thread)];
  if (to.fiber == nullptr) to.fiber = IdleFiber();
  Enter(thread);
  fibers_.SwitchTo(to.fiber);
}

void BlockRunner::WaitForOthers() {
  const int next = TakeNextReady();
  if (next < 0) DieOfDeadlock();
  if (next != current_) SwitchTo(next);
}

}  // namespace cuda_on_host
