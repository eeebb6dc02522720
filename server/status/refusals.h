// The last calls that were refused, for the status page.
#ifndef SPARSEFW_SERVER_STATUS_REFUSALS_H_
#define SPARSEFW_SERVER_STATUS_REFUSALS_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Neither messages nor names: they may be a tenant's.
struct Refusal {
  absl::Time time;
  std::string method;
  std::string code;
  std::string reason;  // may be empty
  int64_t count = 1;   // equal ones in a row
};

// Thread-safe.
class Refusals {
 public:
  static constexpr size_t kKept = 20;

  // A call has ended; successes and calls that the client gave up are no refusals.
  void Ended(std::string_view method, const absl::Status& status, absl::Time now);
  std::vector<Refusal> Latest() const;  // newest first

 private:
  mutable Mutex mutex_;
  std::deque<Refusal> latest_ ABSL_GUARDED_BY(mutex_);  // newest first
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STATUS_REFUSALS_H_
