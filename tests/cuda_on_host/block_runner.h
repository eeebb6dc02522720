// Runs the blocks of a launch, one after the other, on the calling thread.
//
// A thread of a block runs until it waits, at a barrier or a warp operation, or returns; then the
// next one that can run does. Threads that never wait share one fiber and cost no switch; one that
// waits keeps its fiber until it returns. Fibers belong to the runner and are used again by later
// blocks and launches.
//
// Two numberings: a thread's number in the block is CUDA's; its turn is when it
// runs. They differ when threads run backward.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_BLOCK_RUNNER_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_BLOCK_RUNNER_H_

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/cuda_on_host/fiber.h"

namespace cuda_on_host {

inline constexpr int kMaxThreads = 1024;
inline constexpr int kWarpLanes = 32;

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t dynamic_bytes = 0;
};

class BlockRunner {
 public:
  // The calling thread's.
  static BlockRunner& OfThisThread();

  // Returns when every thread of every block has returned.
  void Run(const LaunchShape& shape, const std::function<void()>& thread);

  // For the thread that runs now; kernel_language.h says what they do.
  void SyncBlock(const Place& place);
  uint64_t SyncWarp(WarpOp op, unsigned mask, uint64_t value, int source_lane, const Place& place);
  int lane() const { return current_ % kWarpLanes; }

 private:
  enum class State { kRuns, kAtBarrier, kInWarp, kReturned };  // kRuns: or waits for its turn
  struct Thread {
    State state = State::kRuns;
    Fiber* fiber = nullptr;  // once it has started
    uint3 index = {};
    // While it waits: for what, since where.
    WarpOp op = WarpOp::kVote;
    unsigned mask = 0;
    uint64_t value = 0;
    int source_lane = 0;
    uint64_t result = 0;
    Place place;
  };
  struct Warp {
    unsigned live = 0;     // lanes that have not returned
    unsigned waiting = 0;  // lanes in a warp operation
  };

  void StartBlock();
  bool NextBlock();
  void FiberLoop();
  void Enter(int thread);
  void ThreadReturned();

  int TurnOf(int thread) const { return backward_ ? threads_ - 1 - thread : thread; }
  void MakeReady(int thread);
  int TakeNextReady();
  Fiber* IdleFiber();
  void SwitchTo(int thread);
  void WaitForOthers();

  void CompleteBarrier();
  bool CompleteWarp(int warp, unsigned mask);
  void WarpResults(int first, unsigned lanes, WarpOp op);

  [[noreturn]] void Die(const std::string& why) const;
  [[noreturn]] void DieOfDeadlock() const;
  std::string Describe(int thread) const;

  // The launch.
  LaunchShape shape_;
  const std::function<void()>* body_ = nullptr;
  int threads_ = 0;
  bool backward_ = false;
  uint64_t blocks_done_ = 0;
  uint64_t blocks_ = 0;

  // The block.
  int live_ = 0;                                       // threads that have not returned
  int at_barrier_ = 0;                                 // of these, how many wait there
  int current_ = 0;                                    // the thread that runs
  std::array<uint64_t, kMaxThreads / 64> ready_ = {};  // a bit per turn
  std::vector<Thread> thread_ = std::vector<Thread>(kMaxThreads);
  std::array<Warp, kMaxThreads / kWarpLanes> warp_ = {};

  std::vector<Fiber*> idle_;
  FiberPool fibers_{[this] { FiberLoop(); }};
};

}  // namespace cuda_on_host

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_BLOCK_RUNNER_H_
