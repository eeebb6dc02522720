// Time in tests (CONTRIBUTING.md): nothing is assumed about how fast the machine is.
#ifndef SPARSEFW_TESTS_TESTING_HANG_H_
#define SPARSEFW_TESTS_TESTING_HANG_H_

#include <chrono>
#include <thread>

#include "absl/time/time.h"

namespace sparsefw {

// The longest that anything may take: what is not there by then never comes. No test that passes
// waits it out, on a busy machine and under a sanitizer too.
inline constexpr std::chrono::minutes kHang{10};

// Whether the condition comes to hold.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kHang;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Where something has to happen before a time that the test sets itself: calls attempt(time), which
// returns whether it did, with a time that doubles until this machine is quick enough.
template <typename Attempt>
bool InTime(absl::Duration time, const Attempt& attempt) {
  for (; time < absl::FromChrono(kHang); time *= 2) {
    if (attempt(time)) return true;
  }
  return false;
}

}  // namespace sparsefw

#endif  // SPARSEFW_TESTS_TESTING_HANG_H_
