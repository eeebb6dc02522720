// How many bytes of messages the server may hold between network and disk.
#ifndef SPARSEFW_SERVER_TENSORS_UPLOADS_STAGING_BUDGET_H_
#define SPARSEFW_SERVER_TENSORS_UPLOADS_STAGING_BUDGET_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Hands out bytes in the order in which they were asked for: a large request
// at the head is not overtaken by small ones, so none starves.
//
// Thread-safe. Must outlive its reservations. Never more than limit() is held,
// but for one case: a request larger than the limit is granted once nothing
// else is held, since it could never be granted otherwise.
class StagingBudget {
 public:
  // Bytes held until this is destroyed. Move only.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { Release(); }

    int64_t bytes() const { return bytes_; }
    // Gives the bytes back now. May call what waits for them.
    void Release();

   private:
    friend class StagingBudget;
    Reservation(StagingBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}

    StagingBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  using WaiterId = uint64_t;
  static constexpr WaiterId kGranted = 0;
  // Called once, with no lock held, by whoever asked or by a thread that gave
  // bytes back: it must not block. It may ask for and give back bytes itself.
  using OnGranted = std::function<void(Reservation)>;

  explicit StagingBudget(int64_t limit_bytes) : limit_(limit_bytes) {}
  StagingBudget(const StagingBudget&) = delete;
  StagingBudget& operator=(const StagingBudget&) = delete;

  // Calls `on_granted` before it returns, and returns kGranted, when the bytes
  // are free and nobody waits; otherwise calls it once they are.
  WaiterId Acquire(int64_t bytes, OnGranted on_granted);

  // True: `on_granted` has not been and will not be called. False: it has been,
  // or is about to be, called.
  bool Cancel(WaiterId id);

  int64_t limit() const { return limit_; }
  int64_t used() const;
  int64_t waiting() const;

 private:
  struct Waiter {
    int64_t bytes = 0;
    OnGranted on_granted;
  };

  bool Fits(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GrantWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(int64_t bytes);
  void CallGranted();

  const int64_t limit_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  WaiterId last_id_ ABSL_GUARDED_BY(mutex_) = kGranted;
  std::map<WaiterId, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);  // ids grow: first in, first out
  std::deque<Waiter> granted_ ABSL_GUARDED_BY(mutex_);  // their bytes are held, not called yet
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_UPLOADS_STAGING_BUDGET_H_
