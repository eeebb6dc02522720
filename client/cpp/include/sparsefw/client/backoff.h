// How long to wait before the next attempt, and when to give up.
#ifndef SPARSEFW_CLIENT_BACKOFF_H_
#define SPARSEFW_CLIENT_BACKOFF_H_

#include <cstdint>
#include <optional>
#include <random>

#include "absl/time/time.h"
#include "sparsefw/client/options.h"

namespace sparsefw::client {

// Exponential back-off with jitter and a bound on the time without progress.
// Pure arithmetic: the caller tells the time and sleeps. Not thread-safe.
class Backoff {
 public:
  Backoff(const RetryOptions& options, absl::Time now, uint64_t seed);

  // The next wait: at least `server_delay` where the server asked for one
  // (never shortened by jitter), but no longer than until the time to give up.
  // Empty: that time has come.
  std::optional<absl::Duration> Next(absl::Time now,
                                     std::optional<absl::Duration> server_delay = std::nullopt);

  // To be called after progress: the waits and the time to give up start over.
  void Reset(absl::Time now);
  // To be called after an attempt that took so long: its time does not count as waiting. An attempt
  // may take longer than all trying again may.
  void Postpone(absl::Duration worked) { give_up_ += worked; }

 private:
  const RetryOptions options_;
  std::mt19937_64 random_;
  absl::Time give_up_;
  absl::Duration base_;
};

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_BACKOFF_H_
