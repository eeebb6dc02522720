// Where the thresholds of the coming iterations will lie, and how many of them are worth
// forecasting.
//
// Whatever it says, the vertices are the same; a poor forecast costs time.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace sparsefw::cpu {

template <typename Real>
class ThresholdForecast {
 public:
  struct Interval {
    Real middle = 0;
    Real low = 0;
    Real high = 0;
    Real doubt = 0;  // the threshold often lies so far from the middle
  };

  // The threshold of the iteration that comes next is the first to be forecast.
  void Begin(Real threshold) {
    if (count_ == 0) Add(threshold);
  }

  void Forget() { count_ = 0; }

  // The one that was found.
  void Add(Real threshold) {
    last_[static_cast<size_t>(count_ % kKept)] = threshold;
    ++count_;
  }

  // Of the iteration `ahead` >= 1 after the last one added.
  Interval At(int64_t ahead) const {
    const auto steps = static_cast<double>(ahead);
    const auto newest = static_cast<double>(Last(0));
    const double slope = Slope();
    double noise = 0;
    for (int64_t back = 1; back < Known(); ++back) {
      const double line = newest - slope * static_cast<double>(back);
      noise = std::max(noise, std::abs(static_cast<double>(Last(back)) - line));
    }
    const double reach =
        Known() < 3 ? kFirstReach * newest
                    : kRoom * (noise + 0.5 * std::abs(slope) * steps) + kLeastReach * newest;
    const double middle = std::max(0.0, newest + slope * steps);
    const double doubt = std::min(reach, kDoubt * (noise + 0.5 * std::abs(slope) * steps));
    return {static_cast<Real>(middle), static_cast<Real>(std::max(0.0, middle - reach)),
            static_cast<Real>(middle + reach), static_cast<Real>(doubt)};
  }

  // How many iterations to run ahead.
  int64_t length() const { return count_ < kKept ? 1 : length_; }
  // Of a run of so many rows' iterations, so many were taken again.
  void Learn(int64_t taken, int64_t repeated, bool missed) {
    if (count_ < kKept) return;
    if (missed || 4 * repeated > 3 * taken) {
      length_ = std::max<int64_t>(1, length_ / 2);
    } else if (3 * repeated < taken) {
      length_ = std::min(kLongest, length_ + 1 + length_ / 4);
    }
  }

 private:
  static constexpr int64_t kKept = 8;
  static constexpr int64_t kLongest = 32;
  static constexpr double kRoom = 2;
  static constexpr double kFirstReach = 0.02;
  static constexpr double kLeastReach = 1e-5;
  static constexpr double kDoubt = 0.75;

  int64_t Known() const { return std::min(count_, kKept); }
  Real Last(int64_t back) const { return last_[static_cast<size_t>((count_ - 1 - back) % kKept)]; }
  // Between the older and the newer half of what is kept.
  double Slope() const {
    const int64_t half = Known() / 2;
    if (half == 0) return 0;
    double newer = 0;
    double older = 0;
    for (int64_t i = 0; i < half; ++i) {
      newer += static_cast<double>(Last(i));
      older += static_cast<double>(Last(i + half));
    }
    return (newer - older) / static_cast<double>(half * half);
  }

  std::array<Real, kKept> last_ = {};
  int64_t count_ = 0;
  int64_t length_ = 4;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_
