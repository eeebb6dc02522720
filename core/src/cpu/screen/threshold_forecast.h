// Where the threshold of the next iteration will lie. Whatever it says, the vertices are the same;
// a poor forecast costs time.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sparsefw::cpu {

template <typename Real>
class ThresholdForecast {
 public:
  struct Interval {
    Real low = 0;
    Real high = 0;
  };

  // The last threshold, where none was added.
  void Begin(Real threshold) {
    if (count_ == 0) Add(threshold);
  }

  void Forget() {
    count_ = 0;
    level_ = slope_ = noise_ = 0;
  }

  // The one that was found. Thresholds scatter around a line as independent values do; it is fitted
  // by least squares while they are few, and forgets the older ones then
  // (docs/benchmarks/cpu-log.md, section 10).
  void Add(Real threshold) {
    ++count_;
    const auto known = static_cast<double>(std::min(count_, kKept));
    const double error = static_cast<double>(threshold) - (level_ + slope_);
    level_ += slope_ + 2 * (2 * known - 1) / (known * (known + 1)) * error;
    if (count_ > 1) slope_ += 6 / (known * (known + 1)) * error;
    if (count_ > 2) noise_ = std::max(kFading * noise_, std::abs(error));
  }

  Interval Next() const {
    const double reach = count_ < 3
                             ? kFirstReach * level_
                             : kRoom * (noise_ + 0.5 * std::abs(slope_)) + kLeastReach * level_;
    const double middle = std::max(0.0, level_ + slope_);
    return {static_cast<Real>(std::max(0.0, middle - reach)), static_cast<Real>(middle + reach)};
  }

 private:
  static constexpr int64_t kKept = 40;
  static constexpr double kFading = 0.95;
  static constexpr double kRoom = 2;
  static constexpr double kFirstReach = 0.02;
  static constexpr double kLeastReach = 1e-5;

  int64_t count_ = 0;
  double level_ = 0;
  double slope_ = 0;  // of an iteration
  double noise_ = 0;  // how far thresholds lie from the line
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_
