// Forecasts of thresholds: what they say of sequences that are known.
#include "core/src/cpu/screen/threshold_forecast.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace sparsefw::cpu {
namespace {

// 100, 99.9, 99.8, ...
ThresholdForecast<double> AfterALine(int64_t count) {
  ThresholdForecast<double> forecast;
  for (int64_t i = 0; i < count; ++i) forecast.Add(100 - 0.1 * static_cast<double>(i));
  return forecast;
}

TEST(ThresholdForecastTest, FollowsALine) {
  for (const int64_t count : {20, 60}) {
    const auto interval = AfterALine(count).Next();
    const double expected = 100 - 0.1 * static_cast<double>(count);
    EXPECT_NEAR((interval.low + interval.high) / 2, expected, 1e-9);
    EXPECT_LT(interval.low, expected);
    EXPECT_GT(interval.high, expected);
  }
}

TEST(ThresholdForecastTest, ReachesAsFarAsTheThresholdsLeftTheLine) {
  ThresholdForecast<double> forecast;
  for (int64_t i = 0; i < 20; ++i) forecast.Add(i % 2 == 0 ? 101 : 99);
  const auto interval = forecast.Next();
  EXPECT_LE(interval.low, 99);
  EXPECT_GE(interval.high, 101);
}

// The last value alone is off by 1.
TEST(ThresholdForecastTest, NoiseAroundALineAveragesOut) {
  ThresholdForecast<double> forecast;
  for (int64_t i = 0; i < 60; ++i) {
    forecast.Add(100 - 0.1 * static_cast<double>(i) + (i % 2 == 0 ? 1 : -1));
  }
  const auto interval = forecast.Next();
  EXPECT_NEAR((interval.low + interval.high) / 2, 94, 0.2);
}

TEST(ThresholdForecastTest, NeverGoesBelowZero) {
  ThresholdForecast<float> forecast;
  for (int64_t i = 0; i < 11; ++i) forecast.Add(static_cast<float>(10 - i));
  const auto interval = forecast.Next();
  EXPECT_EQ(interval.low, 0);
  EXPECT_GT(interval.high, 0);
}

TEST(ThresholdForecastTest, ForgetsAndBeginsAgain) {
  auto forecast = AfterALine(8);
  forecast.Forget();
  forecast.Begin(5);
  forecast.Begin(500);  // one is known already
  const auto interval = forecast.Next();
  EXPECT_NEAR((interval.low + interval.high) / 2, 5, 1e-9);
}

}  // namespace
}  // namespace sparsefw::cpu
