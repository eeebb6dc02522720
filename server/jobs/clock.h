// Clocks that tests can replace.
#ifndef SPARSEFW_SERVER_JOBS_CLOCK_H_
#define SPARSEFW_SERVER_JOBS_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // The time of day, which may be set: for what people see and a later process reads.
  virtual absl::Time Now() = 0;
  // Time that nobody sets, for all that happens within this process: sparsefw::SteadyNow.
  virtual absl::Time SteadyNow() = 0;

  // Releases `mutex`, waits until `condition` is notified or the steady `time` has come,
  // and holds `mutex` again on return. May return earlier: wait in a loop.
  virtual void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;
};

// Lives as long as the program.
Clock& RealClock();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_CLOCK_H_
