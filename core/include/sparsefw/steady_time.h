// Time that nobody sets.
#ifndef SPARSEFW_STEADY_TIME_H_
#define SPARSEFW_STEADY_TIME_H_

#include "absl/time/time.h"

namespace sparsefw {

// The wall clock at the first call, and from there on the steady clock: for deadlines and times of
// waiting within this process. It is the time of day only until somebody sets the clock.
absl::Time SteadyNow();

// By which what has a stored time of day expires: `wall`, which is ahead of `steady` by the steps
// of the wall clock, less these; steps of more than a week count, for the clock may have been
// wrong at the start. So nothing expires early when the clock is set ahead.
absl::Time ExpiryNow(absl::Time wall, absl::Time steady);

}  // namespace sparsefw

#endif  // SPARSEFW_STEADY_TIME_H_
