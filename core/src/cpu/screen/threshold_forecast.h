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
    Fit();
  }

  // The interval of the iteration `ahead` >= 1 after the last one added.
  Interval At(int64_t ahead) const {
    const auto steps = static_cast<double>(ahead);
    const double spread = noise_ + 0.5 * std::abs(slope_) * steps;
    const double reach = Known() < 3 ? kFirstReach * level_ : kRoom * spread + kLeastReach * level_;
    const double middle = std::max(0.0, level_ + slope_ * steps);
    return {static_cast<Real>(middle), static_cast<Real>(std::max(0.0, middle - reach)),
            static_cast<Real>(middle + reach)};
  }

  // How many iterations to run ahead.
  int64_t length() const { return count_ < kEnough ? 1 : length_; }
  // A run took `taken` iterations of rows, and `repeated` of them again.
  void Learn(int64_t taken, int64_t repeated, bool missed) {
    if (count_ < kEnough) return;
    if (missed || 4 * repeated > 3 * taken) {
      length_ = std::max<int64_t>(1, length_ / 2);
    } else if (3 * repeated < taken) {
      length_ = std::min(kLongest, length_ + 1 + length_ / 4);
    }
  }

 private:
  // Around a line the thresholds scatter as independent values do: the more of them, the better it
  // is known (docs/benchmarks/cpu-log.md, section 10).
  static constexpr int64_t kKept = 40;
  static constexpr int64_t kEnough = 8;
  static constexpr int64_t kLongest = 32;
  static constexpr double kRoom = 2;
  static constexpr double kFirstReach = 0.02;
  static constexpr double kLeastReach = 1e-5;

  int64_t Known() const { return std::min(count_, kKept); }
  Real Last(int64_t back) const { return last_[static_cast<size_t>((count_ - 1 - back) % kKept)]; }
  // The line through what is kept, by least squares; its value at the newest.
  void Fit() {
    const auto known = static_cast<double>(Known());
    double sum = 0;
    double moment = 0;
    for (int64_t back = 0; back < Known(); ++back) {
      const auto value = static_cast<double>(Last(back));
      sum += value;
      moment -= static_cast<double>(back) * value;
    }
    const double centre = -(known - 1) / 2;
    const double inertia = known * (known * known - 1) / 12;
    slope_ = Known() < 2 ? 0 : (moment - centre * sum) / inertia;
    level_ = sum / known - slope_ * centre;
    noise_ = 0;
    for (int64_t back = 0; back < Known(); ++back) {
      const double line = level_ - slope_ * static_cast<double>(back);
      noise_ = std::max(noise_, std::abs(static_cast<double>(Last(back)) - line));
    }
  }

  std::array<Real, kKept> last_ = {};
  int64_t count_ = 0;
  double level_ = 0;
  double slope_ = 0;  // of an iteration
  double noise_ = 0;  // the furthest that one of them is off the line
  int64_t length_ = 4;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_
