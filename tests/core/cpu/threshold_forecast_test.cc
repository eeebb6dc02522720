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
  const auto forecast = AfterALine(20);
  for (const int64_t ahead : {1, 5, 30}) {
    const auto interval = forecast.At(ahead);
    const double expected = 100 - 0.1 * static_cast<double>(19 + ahead);
    EXPECT_NEAR(interval.middle, expected, 1e-9);
    EXPECT_LT(interval.low, expected);
    EXPECT_GT(interval.high, expected);
  }
}

TEST(ThresholdForecastTest, ReachesAsFarAsTheThresholdsLeftTheLine) {
  ThresholdForecast<double> forecast;
  for (int64_t i = 0; i < 20; ++i) forecast.Add(i % 2 == 0 ? 101 : 99);
  const auto interval = forecast.At(1);
  EXPECT_LE(interval.low, 99);
  EXPECT_GE(interval.high, 101);
}

// The last value alone is off by 1.
TEST(ThresholdForecastTest, NoiseAroundALineAveragesOut) {
  ThresholdForecast<double> forecast;
  for (int64_t i = 0; i < 60; ++i) {
    forecast.Add(100 - 0.1 * static_cast<double>(i) + (i % 2 == 0 ? 1 : -1));
  }
  for (const int64_t ahead : {1, 8}) {
    EXPECT_NEAR(forecast.At(ahead).middle, 100 - 0.1 * static_cast<double>(59 + ahead), 0.2);
  }
}

TEST(ThresholdForecastTest, NeverGoesBelowZero) {
  ThresholdForecast<float> forecast;
  for (int64_t i = 0; i < 10; ++i) forecast.Add(static_cast<float>(10 - i));
  const auto interval = forecast.At(30);
  EXPECT_EQ(interval.low, 0);
  EXPECT_EQ(interval.middle, 0);
  EXPECT_GT(interval.high, 0);
}

TEST(ThresholdForecastTest, OneIterationUntilEnoughIsKnown) {
  EXPECT_EQ(AfterALine(3).length(), 1);
  EXPECT_GT(AfterALine(8).length(), 1);
  auto forecast = AfterALine(8);
  forecast.Forget();
  EXPECT_EQ(forecast.length(), 1);
}

TEST(ThresholdForecastTest, RunsGetLongerWhereLittleIsRepeated) {
  auto forecast = AfterALine(8);
  const int64_t first = forecast.length();
  forecast.Learn(100, 10, false);
  EXPECT_GT(forecast.length(), first);
  for (int i = 0; i < 100; ++i) forecast.Learn(100, 0, false);
  EXPECT_LE(forecast.length(), 64);
  const int64_t longest = forecast.length();
  forecast.Learn(100, 50, false);
  EXPECT_EQ(forecast.length(), longest);
  forecast.Learn(100, 90, false);
  EXPECT_LT(forecast.length(), longest);
  for (int i = 0; i < 100; ++i) forecast.Learn(100, 0, true);
  EXPECT_EQ(forecast.length(), 1);
}

}  // namespace
}  // namespace sparsefw::cpu
