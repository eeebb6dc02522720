// Precisions, tuning and counters of single engines.
#ifndef SPARSEFW_ENGINE_DETAILS_H_
#define SPARSEFW_ENGINE_DETAILS_H_

#include <cstdint>
#include <string_view>

namespace sparsefw {

// Precision of the dense products of the iteration on a CUDA device. The CPU
// engines always use at least float32, and final losses are recomputed in
// float64 whatever this says.
enum class ProductPrecision { kFloat32, kTf32, kBf16 };
std::string_view NameOf(ProductPrecision precision);  // "fp32"

// Precision of the iterates of the CPU and CUDA engines. kAuto is for
// everyone but tests and benchmarks: float64 where a layer is small.
//
// float32 halves the memory traffic that bounds a step. But Frank-Wolfe is
// chaotic where it zigzags (small alpha): one near-tie that rounding decides
// differently sends the iterates along another path of about the same losses.
// A small layer takes no time anyway, has fewer coordinates over which such
// differences average out, and follows the float64 path exactly.
enum class Precision { kAuto, kFloat32, kFloat64 };

// CPU engine: iterations that look only at the columns that can still change, with the
// same vertices (docs/numerics.md, Screening). kNever and kAlways are for tests and
// benchmarks.
enum class Screening { kWhereItPays, kNever, kAlways };

// Choices that engines make themselves, but for tests and benchmarks.
struct EngineTuning {
  Screening screening = Screening::kWhereItPays;
  // CUDA engine: the share of coordinates that change in an iteration above which
  // U is formed by a dense product. Below 0: its own choice.
  double dense_share = -1;
};

// CPU engine: iterations that looked only at columns that could still change
// (docs/numerics.md, Screening); of the others all are 0.
struct ScreeningCounts {
  int64_t epochs = 0;       // begun since Load
  int64_t iterations = 0;   // taken in them
  double active_share = 0;  // of the weights that these looked at, on average
};

struct EngineStats {
  ScreeningCounts screening = {};
  // CUDA engine: captures of a step as a graph that failed since Load. Such steps give the same
  // result but take longer: they are enqueued call by call.
  int64_t capture_failures = 0;
};

}  // namespace sparsefw

#endif  // SPARSEFW_ENGINE_DETAILS_H_
