// The penalty rho of ALPS, which follows how much the support still changes.
#ifndef SPARSEFW_CORE_SRC_ALPS_PENALTY_H_
#define SPARSEFW_CORE_SRC_ALPS_PENALTY_H_

#include <algorithm>
#include <cstdint>

namespace sparsefw::alps {

inline constexpr double kDamping = 0.01;
inline constexpr int64_t kIterations = 300;
inline constexpr int64_t kCheckEvery = 3;
inline constexpr int64_t kSteps = 10;  // on the support
inline constexpr double kStepTolerance = 1e-4;

class Penalty {
 public:
  // kept: entries of the support. settled > 0: it ends as well at the first check, rho having been
  // raised, at which the entries that came or went are less than this share; or none did before.
  explicit Penalty(int64_t kept, double settled = 0) : kept_(kept), settled_(settled) {}

  enum class Next { kGoOn, kBeginAgain, kEnd };

  // After every kCheckEvery-th of the iterations, from 1 on: in how many entries the support
  // differs from that at the last check.
  Next Adapt(int64_t iterations, int64_t changed) {
    const double share = kept_ == 0 ? 0 : static_cast<double>(changed) / static_cast<double>(kept_);
    Next next = Next::kGoOn;
    const bool unmoved = changed == 0 || iterations > kSettledFrom;
    if (settled_ > 0 && (raised_ ? share < settled_ : unmoved)) return Next::kEnd;
    if (share > 0.005) {
      rho_ *= share > 0.1 ? 1.3 : 1.2;
      raised_ = true;
    } else if (raised_) {
      if (changed == 0) return Next::kEnd;
      rho_ *= 1.1;
    } else {
      rho_ /= 5;
      if (changed > 0) next = Next::kBeginAgain;
    }
    rho_ = std::min(rho_, kMostRho);
    return iterations > kSettledFrom && share < kSettled ? Next::kEnd : next;
  }
  double rho() const { return rho_; }

 private:
  static constexpr int64_t kSettledFrom = 30;  // iterations before it may end for a small change
  static constexpr double kSettled = 0.0003;
  static constexpr double kMostRho = 1e6;

  const int64_t kept_;
  const double settled_;
  double rho_ = 0.1;
  bool raised_ = false;
};

}  // namespace sparsefw::alps

#endif  // SPARSEFW_CORE_SRC_ALPS_PENALTY_H_
