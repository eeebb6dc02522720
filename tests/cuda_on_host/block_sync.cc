// Barriers and warp operations of block_runner.h, and what goes wrong there.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/cuda_on_host/block_runner.h"

namespace cuda_on_host {
namespace {

std::string At(const Place& place) {
  return absl::StrFormat("%s:%d", place.file_name(), place.line());
}

bool SamePlace(const Place& a, const Place& b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string Shape(const dim3& size) {
  return absl::StrFormat("(%d, %d, %d)", size.x, size.y, size.z);
}

std::string Index(const uint3& at) { return absl::StrFormat("(%d, %d, %d)", at.x, at.y, at.z); }

}  // namespace

void SyncBlock(const Place& place) { BlockRunner::OfThisThread().SyncBlock(place); }

uint64_t SyncWarp(WarpOp op, unsigned mask, uint64_t value, int source_lane, const Place& place) {
  return BlockRunner::OfThisThread().SyncWarp(op, mask, value, source_lane, place);
}

int Lane() { return BlockRunner::OfThisThread().lane(); }

void BlockRunner::SyncBlock(const Place& place) {
  if (body_ == nullptr) Die("__syncthreads outside a kernel at " + At(place));
  Thread& me = thread_[static_cast<size_t>(current_)];
  me.state = State::kAtBarrier;
  me.place = place;
  ++at_barrier_;
  if (at_barrier_ == live_) CompleteBarrier();
  WaitForOthers();  // until its turn comes again
}

// All that live have arrived.
void BlockRunner::CompleteBarrier() {
  const Thread* first = nullptr;
  for (int i = 0; i < threads_; ++i) {
    const Thread& thread = thread_[static_cast<size_t>(i)];
    if (thread.state != State::kAtBarrier) continue;
    if (first == nullptr) first = &thread;
    if (!SamePlace(thread.place, first->place)) {
      Die("threads of one block meet at different barriers: thread " + Index(first->index) +
          " at " + At(first->place) + ", thread " + Index(thread.index) + " at " +
          At(thread.place));
    }
    MakeReady(i);
  }
  at_barrier_ = 0;
}

uint64_t BlockRunner::SyncWarp(WarpOp op, unsigned mask, uint64_t value, int source_lane,
                               const Place& place) {
  if (body_ == nullptr) Die("a warp operation outside a kernel at " + At(place));
  Thread& me = thread_[static_cast<size_t>(current_)];
  const unsigned bit = 1u << lane();
  if ((mask & bit) == 0) {
    Die(
        absl::StrFormat("thread %s calls a warp operation at %s with mask 0x%08x, which lacks its "
                        "own lane %d",
                        Index(me.index), At(place), mask, lane()));
  }
  if (source_lane < 0 || source_lane >= kWarpLanes) {
    Die(absl::StrFormat("thread %s reads lane %d of its warp at %s", Index(me.index), source_lane,
                        At(place)));
  }
  me.state = State::kInWarp;
  me.op = op;
  me.mask = mask;
  me.value = value;
  me.source_lane = source_lane;
  me.place = place;
  const int warp = current_ / kWarpLanes;
  warp_[static_cast<size_t>(warp)].waiting |= bit;
  CompleteWarp(warp, mask);
  WaitForOthers();
  return me.result;
}

// Lets the lanes of the mask go on if all of them that live wait with it.
bool BlockRunner::CompleteWarp(int warp, unsigned mask) {
  Warp& state = warp_[static_cast<size_t>(warp)];
  const unsigned lanes = mask & state.live;
  if ((lanes & ~state.waiting) != 0) return false;
  const int first = warp * kWarpLanes;
  const Thread* one = nullptr;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const Thread& thread = thread_[static_cast<size_t>(first + std::countr_zero(rest))];
    if (thread.mask != mask) return false;
    if (one == nullptr) one = &thread;
    if (thread.op != one->op) {
      Die("lanes of one warp meet in different operations: thread " + Index(one->index) + " at " +
          At(one->place) + ", thread " + Index(thread.index) + " at " + At(thread.place));
    }
  }
  if (one == nullptr) return false;
  WarpResults(first, lanes, one->op);
  state.waiting &= ~lanes;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    MakeReady(first + std::countr_zero(rest));
  }
  return true;
}

// Gives each of the lanes its result, so that what they do next cannot change it.
void BlockRunner::WarpResults(int first, unsigned lanes, WarpOp op) {
  const auto lane_at = [&](int lane) -> Thread& {
    return thread_[static_cast<size_t>(first + lane)];
  };
  if (op == WarpOp::kShuffle) {
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
      Thread& thread = lane_at(std::countr_zero(rest));
      const bool takes_part = ((lanes >> thread.source_lane) & 1u) != 0;
      thread.result = takes_part ? lane_at(thread.source_lane).value : ~uint64_t{0};
    }
    return;
  }
  uint64_t all = 0;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    all |= uint64_t{lane_at(lane).value != 0} << lane;
  }
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    lane_at(std::countr_zero(rest)).result = all;
  }
}

std::string BlockRunner::Describe(int thread) const {
  const Thread& who = thread_[static_cast<size_t>(thread)];
  switch (who.state) {
    case State::kAtBarrier:
      return absl::StrFormat("thread %s waits at the block's barrier, %s", Index(who.index),
                             At(who.place));
    case State::kInWarp:
      return absl::StrFormat("thread %s waits in a warp operation, mask 0x%08x, %s",
                             Index(who.index), who.mask, At(who.place));
    case State::kReturned:
      return absl::StrFormat("thread %s has returned", Index(who.index));
    case State::kRuns:
      break;
  }
  return absl::StrFormat("thread %s runs", Index(who.index));
}

void BlockRunner::Die(const std::string& why) const {
  std::string message = "CUDA on the host: " + why + "\n";
  if (body_ != nullptr) {
    message += absl::StrFormat(
        "  in block %s of a launch of grid %s, block %s, %d bytes of dynamic "
        "shared memory\n",
        Index(blockIdx), Shape(shape_.grid), Shape(shape_.block), shape_.dynamic_bytes);
  }
  std::fputs(message.c_str(), stderr);
  std::abort();
}

void BlockRunner::DieOfDeadlock() const {
  std::string why = "deadlock, no thread of the block can go on";
  // One line for each way of waiting is enough to see what happened.
  std::vector<std::string> seen;
  for (int i = 0; i < threads_; ++i) {
    const Thread& thread = thread_[static_cast<size_t>(i)];
    std::string way = absl::StrFormat("%d %d %s", static_cast<int>(thread.state),
                                      thread.state == State::kInWarp ? thread.mask : 0,
                                      thread.state == State::kReturned ? "" : At(thread.place));
    if (std::find(seen.begin(), seen.end(), way) != seen.end()) continue;
    why += "\n  " + Describe(i);
    seen.push_back(std::move(way));
  }
  Die(why);
}

}  // namespace cuda_on_host
