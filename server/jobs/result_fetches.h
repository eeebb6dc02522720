// Results that a watcher was told of and has not read yet.
#ifndef SPARSEFW_SERVER_JOBS_RESULT_FETCHES_H_
#define SPARSEFW_SERVER_JOBS_RESULT_FETCHES_H_

#include <list>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "server/jobs/clock.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Between the end of a client's watch and its ReadTensor no call is open, so a
// drain cannot see the client. It waits for one complete read of the mask for
// each watcher that was told of it, at most `grace` after the watcher was told.
// Thread-safe.
class ResultFetches {
 public:
  // `clock` outlives it.
  ResultFetches(absl::Duration grace, Clock& clock) : grace_(grace), clock_(clock) {}

  // A watcher is about to be told of the mask. The call comes before the message, so that it
  // comes before Fetched; NotSent takes it back.
  void Sending(const std::string& mask);
  void NotSent(const std::string& mask) { Remove(mask); }
  void Fetched(const std::string& mask) { Remove(mask); }  // to its end
  // Returns when no read is outstanding, or at `end`.
  void WaitUntilFetched(absl::Time end);

 private:
  void Remove(const std::string& mask);
  void DropLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration grace_;
  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  // One entry for every watcher: how long its read is waited for, the first to end in front.
  struct Wait;
  using ByMask = std::multimap<std::string, std::list<Wait>::iterator>;
  struct Wait {
    absl::Time until;
    ByMask::iterator entry;
  };
  std::list<Wait> by_time_ ABSL_GUARDED_BY(mutex_);
  ByMask outstanding_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_RESULT_FETCHES_H_
