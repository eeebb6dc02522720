#include "server/runner/job_needs.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "server/runner/devices.h"
#include "server/runner/sweep_results.h"
#include "sparsefw/alps.h"
#include "sparsefw/reason.h"
#include "sparsefw/solver.h"
#include "sparsefw/sparsegpt.h"
#include "sparsefw/status_macros.h"

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

// A part of the job that the device cannot run, as refusals name it, and the reason; both empty
// where there is none.
struct CpuWork {
  std::string_view name;
  std::string reason;
};

CpuWork OnCpuAlone(const SweepPoint& point, const Backend& device) {
  const SolveOptions& options = point.options;
  if (!HasOwnWeights(options.method)) return {};
  const absl::Status prunes = device.CheckPrune();
  if (prunes.ok()) return {};
  return {options.method == Method::kAlps ? "ALPS" : "SPARSEGPT", std::string(prunes.message())};
}

}  // namespace

bool SharesGram(const JobSpec& spec, const Backend& backend) {
  return spec.options.shrinkage == 0 || backend.shrinks_gram();
}

absl::StatusOr<std::vector<const Backend*>> PlaceJob(const JobSpec& spec,
                                                     const std::vector<const Backend*>& usable,
                                                     const std::vector<const Backend*>& otherwise) {
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<const Backend*> backends,
                            ResolveDevices(spec.device, usable, otherwise));
  const std::vector<SweepPoint> points = PointsOf(spec);
  const Backend& device = *backends.front();
  if (!device.has_device_memory()) return backends;
  CpuWork found;
  size_t on_cpu = 0;
  for (const SweepPoint& point : points) {
    CpuWork work = OnCpuAlone(point, device);
    if (work.name.empty()) continue;
    if (on_cpu++ == 0) found = std::move(work);
  }
  if (on_cpu == 0) return backends;
  if (!spec.device.empty() && spec.device != "auto") {
    return Invalid("OPTION_INVALID", "device must be cpu for %s (%s); got %s", found.name,
                   found.reason, spec.device);
  }
  if (on_cpu == points.size()) return ResolveDevices("cpu", usable, otherwise);
  return Invalid("OPTION_INVALID",
                 "a sweep must not mix %s (%s) with methods that run on %s; set device to cpu, or "
                 "submit them apart",
                 found.name, found.reason, device.Describe().name);
}

double JobCost(const JobSpec& spec, int64_t rows, int64_t cols) {
  double cost = 0;
  for (const SweepPoint& point : PointsOf(spec)) {
    cost += PointCost(point, static_cast<double>(rows), static_cast<double>(cols));
  }
  return cost;
}

int64_t WorkingBytes(const Backend& backend, const JobSpec& spec, int64_t rows, int64_t cols,
                     DType gram) {
  const std::vector<SweepPoint> points = PointsOf(spec);
  const bool sweep = points.size() > 1;
  int64_t most = 0;
  bool host_reads_gram = !backend.shrinks_gram();
  for (const SweepPoint& point : points) {
    const SolveOptions& options = point.options;
    int64_t own = 0;
    const bool by_engine = HasOwnWeights(options.method) && backend.CheckPrune().ok();
    if (!by_engine && options.method == Method::kSparseGpt) {
      own = SparseGptBytes(rows, cols, point.pattern, options.sparsegpt);
    } else if (!by_engine && options.method == Method::kAlps) {
      own = AlpsBytes(rows, cols);
    }
    // Beside the engine: where the joint search may begin.
    const bool second_start = options.joint && options.method != Method::kAlps;
    const bool reconstruct = options.reconstruct || options.measure_new_weights;
    const MemoryRequest request = {.swaps = options.swaps,
                                   .reconstruct = reconstruct,
                                   .joint = options.joint,
                                   .sweep = sweep,
                                   .prunes = by_engine};
    const bool uses_engine = own == 0 || reconstruct || options.joint;
    const int64_t engine =
        uses_engine || sweep ? backend.EstimateHostBytes(rows, cols, request) : int64_t{0};
    const int64_t both = sweep ? own + engine : std::max(own, engine);
    most = std::max(most, second_start ? JointStartBytes(rows, cols) + both : both);
    host_reads_gram = host_reads_gram || own > 0 || second_start;
  }
  const bool shrunk = spec.options.shrinkage > 0 && host_reads_gram;
  return most + KeptBytes(spec, rows, cols) +
         (shrunk ? cols * cols * static_cast<int64_t>(SizeOf(gram)) : 0);
}

int64_t DeviceBytes(const Backend& backend, const JobSpec& spec, const MatrixSpec& weights,
                    DType gram, bool shares) {
  const std::vector<SweepPoint> points = PointsOf(spec);
  int64_t most = 0;
  for (const SweepPoint& point : points) {
    const MemoryRequest request = {
        .swaps = point.options.swaps,
        .reconstruct = point.options.reconstruct || point.options.measure_new_weights,
        .joint = point.options.joint,
        .sweep = points.size() > 1,
        .iterates = point.options.method == Method::kSparseFw,
        .prunes = HasOwnWeights(point.options.method),
        .method =
            point.options.method == Method::kAlps ? WeightMethod::kAlps : WeightMethod::kSparseGpt,
        .sparsegpt = point.options.sparsegpt,
        .pattern = point.pattern,
        .device_gram = shares,
        .shrinks = spec.options.shrinkage > 0,
        .weights = weights.dtype,
        .gram = gram,
        .product_precision = points.front().options.product_precision};
    most = std::max(most, backend.EstimateDeviceBytes(weights.rows, weights.cols, request));
  }
  return most;
}

absl::Status CheckHostMemory(int64_t rows, int64_t cols, int64_t needed, int64_t limit) {
  if (needed > limit) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
        "a layer of [%d, %d] needs about %d bytes of working memory; running jobs may use %d "
        "together",
        rows, cols, needed, limit);
  }
  const int64_t there = HostMemoryBytes();
  if (there <= 0 || needed <= there) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                "a layer of [%d, %d] needs about %d bytes of working memory; this machine has %d",
                rows, cols, needed, there);
}

}  // namespace sparsefw::server
