#include "sparsefw/client/backoff.h"

#include <algorithm>

namespace sparsefw::client {

Backoff::Backoff(const RetryOptions& options, absl::Time now, uint64_t seed)
    : options_(options), random_(seed) {
  Reset(now);
}

void Backoff::Reset(absl::Time now) {
  give_up_ = now + options_.give_up_after;
  base_ = std::min(options_.initial_backoff, options_.max_backoff);
}

std::optional<absl::Duration> Backoff::Next(absl::Time now,
                                            std::optional<absl::Duration> server_delay) {
  const double share = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  absl::Duration delay = base_ * share;
  base_ = std::min(base_ * options_.multiplier, options_.max_backoff);
  // Jitter goes on top of what the server asked for: clients that were all
  // refused at once must not all come back at once.
  if (server_delay) delay += *server_delay;
  if (now >= give_up_) return std::nullopt;
  // The last attempt is at the time to give up, however long the wait would be.
  return std::min(delay, give_up_ - now);
}

}  // namespace sparsefw::client
