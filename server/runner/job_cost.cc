#include "server/runner/job_cost.h"

#include "server/jobs/job_spec.h"

namespace sparsefw::server {
namespace {

constexpr double kPassesOfAStep = 16;      // selection, gradient, loss, rounding
constexpr double kProductsOfSwaps = 2;     // as many as the swaps replace, roughly
constexpr double kProductsOfAnUpdate = 8;  // reconstruction

double PointCost(const SweepPoint& point, double rows, double cols) {
  const SolveOptions& options = point.options;
  const double product = 2 * rows * cols * cols;
  double cost = 2 * product;  // losses of the start and the end
  if (options.method == Method::kSparseGpt) cost += 2 * product + cols * cols * cols;
  if (options.method == Method::kSparseFw) {
    cost += product + kPassesOfAStep * rows * cols * static_cast<double>(options.iterations);
  }
  if (options.swaps) cost += kProductsOfSwaps * product;
  if (options.reconstruct) cost += kProductsOfAnUpdate * product;
  return cost;
}

}  // namespace

double JobCost(const JobSpec& spec, int64_t rows, int64_t cols) {
  double cost = 0;
  for (const SweepPoint& point : PointsOf(spec)) {
    cost += PointCost(point, static_cast<double>(rows), static_cast<double>(cols));
  }
  return cost;
}

}  // namespace sparsefw::server
