#include "gtest/gtest.h"
#include "server/runner/job_needs.h"

namespace sparsefw::server {
namespace {

JobSpec SpecOf(Method method, int64_t iterations = 0) {
  JobSpec spec;
  spec.options.method = method;
  spec.options.iterations = iterations;
  return spec;
}

TEST(JobCostTest, GrowsWithWhatIsAskedFor) {
  const double wanda = JobCost(SpecOf(Method::kWanda), 64, 128);
  EXPECT_GT(wanda, 0);
  EXPECT_DOUBLE_EQ(JobCost(SpecOf(Method::kWanda), 128, 128), 2 * wanda);
  EXPECT_DOUBLE_EQ(JobCost(SpecOf(Method::kWanda), 64, 256), 4 * wanda);
  EXPECT_GT(JobCost(SpecOf(Method::kSparseGpt), 64, 128), wanda);
  const double none = JobCost(SpecOf(Method::kSparseFw, 0), 64, 128);
  const double some = JobCost(SpecOf(Method::kSparseFw, 1000), 64, 128);
  EXPECT_GT(some, none);
  EXPECT_DOUBLE_EQ(JobCost(SpecOf(Method::kSparseFw, 3000), 64, 128) - none, 3 * (some - none));
  JobSpec more = SpecOf(Method::kWanda);
  more.options.swaps = true;
  EXPECT_GT(JobCost(more, 64, 128), wanda);
  more.options.swaps = false;
  more.options.reconstruct = true;
  EXPECT_GT(JobCost(more, 64, 128), wanda);
}

TEST(JobCostTest, OfASweepIsThatOfAllPoints) {
  JobSpec sweep = SpecOf(Method::kWanda);
  sweep.sweep.assign(3, {sweep.pattern, sweep.options});
  EXPECT_DOUBLE_EQ(JobCost(sweep, 64, 128), 3 * JobCost(SpecOf(Method::kWanda), 64, 128));
}

}  // namespace
}  // namespace sparsefw::server
