// Units that those who ask get in turn: bytes of messages between network and disk, turns at
// reading.
#ifndef SPARSEFW_SERVER_NET_FAIR_SEMAPHORE_H_
#define SPARSEFW_SERVER_NET_FAIR_SEMAPHORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Hands out units in the order in which they were asked for: a large request
// at the head is not overtaken by small ones, so none starves.
//
// Thread-safe. Must outlive its reservations. Never more than limit() is held,
// but for one case: a request larger than the limit is granted once nothing
// else is held, since it could never be granted otherwise.
class FairSemaphore {
 public:
  // Units held until this is destroyed. Move only.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept { Swap(other); }
    Reservation& operator=(Reservation other) noexcept {
      Swap(other);
      return *this;
    }
    ~Reservation() { Release(); }

    int64_t units() const { return units_; }
    // Gives the units back now. May call what waits for them.
    void Release();

   private:
    friend class FairSemaphore;
    Reservation(FairSemaphore* semaphore, int64_t units) : semaphore_(semaphore), units_(units) {}
    void Swap(Reservation& other) noexcept {
      std::swap(semaphore_, other.semaphore_);
      std::swap(units_, other.units_);
    }

    FairSemaphore* semaphore_ = nullptr;
    int64_t units_ = 0;
  };

  using WaiterId = uint64_t;
  static constexpr WaiterId kGranted = 0;
  // Called once, with no lock held, by whoever asked or by a thread that gave
  // units back: it must not block. It may ask for and give back units itself.
  using OnGranted = std::function<void(Reservation)>;

  // `may_grant`: asked, with a lock held, before units are given to anybody; false keeps all
  // waiting until the next time that units are given back, or Resume.
  explicit FairSemaphore(int64_t limit, std::function<bool()> may_grant = nullptr)
      : limit_(limit), may_grant_(std::move(may_grant)) {}
  FairSemaphore(const FairSemaphore&) = delete;
  FairSemaphore& operator=(const FairSemaphore&) = delete;

  // Calls `on_granted` before it returns, and returns kGranted, when the units
  // are free and nobody waits; otherwise calls it once they are.
  WaiterId Acquire(int64_t units, OnGranted on_granted);

  // True: `on_granted` has not been and will not be called. False: it has been,
  // or is about to be, called.
  bool Cancel(WaiterId id);

  // Called when `may_grant` may have become true. May call what waits.
  void Resume() { GiveBack(0); }

  int64_t limit() const { return limit_; }
  int64_t used() const;
  int64_t waiting() const;

 private:
  struct Waiter {
    int64_t units = 0;
    OnGranted on_granted;
  };

  bool Fits(int64_t units) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GrantWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(int64_t units);
  void CallGranted();

  const int64_t limit_;
  const std::function<bool()> may_grant_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  WaiterId last_id_ ABSL_GUARDED_BY(mutex_) = kGranted;
  std::map<WaiterId, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);  // ids grow: first in, first out
  std::deque<Waiter> granted_ ABSL_GUARDED_BY(mutex_);  // their units are held, not called yet
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_FAIR_SEMAPHORE_H_
