// Where the thresholds of the coming iterations will lie, and how many of them are worth
// forecasting.
//
// Whatever it says, the vertices are the same; a poor forecast costs time.
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
    Real middle = 0;
    Real low = 0;
    Real high = 0;
  };

  // The threshold of the iteration that comes next is the first to be forecast.
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

  // The interval of the iteration `ahead` >= 1 after the last one added.
  Interval At(int64_t ahead) const {
    const auto steps = static_cast<double>(ahead);
    const double reach =
        count_ < 3 ? kFirstReach * level_
                   : kRoom * (noise_ + 0.5 * std::abs(slope_) * steps) + kLeastReach * level_;
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
  static constexpr int64_t kKept = 40;
  static constexpr double kFading = 0.95;
  static constexpr int64_t kEnough = 8;
  static constexpr int64_t kLongest = 32;
  static constexpr double kRoom = 2;
  static constexpr double kFirstReach = 0.02;
  static constexpr double kLeastReach = 1e-5;

  int64_t count_ = 0;
  double level_ = 0;
  double slope_ = 0;  // of an iteration
  double noise_ = 0;  // how far thresholds lie from the line
  int64_t length_ = 4;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_THRESHOLD_FORECAST_H_
