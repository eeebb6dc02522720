// An iterate of Frank-Wolfe in float32 on the device with copies of its data on the host, for the
// smoke parts of the iteration's kernels.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_ITERATE_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_ITERATE_H_

#include <cstdint>
#include <random>
#include <vector>

#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "sparsefw/pattern.h"

namespace sparsefw::bench {

// Random W, symmetric random G, a fixed tenth, and a vertex of which 2.5 % of the free
// coordinates differ from the previous one. Matrices on the host are padded as on the device.
class SmokeIterate {
 public:
  SmokeIterate(const Pattern& pattern, int64_t rows, int64_t cols);

  // Everything as it was made, the state that of iteration 3.
  void Reset();

  const cuda::IterateView<float>& it() const { return it_; }
  int64_t stride() const { return it_.stride; }
  // Where a product's left operand goes.
  cuda::LeftOperand<float> Operand();
  bool IsFree(int64_t i) const { return i % stride() < it_.cols && !Bit(fixed_, i); }
  static bool Bit(const std::vector<cuda::BitWord>& words, int64_t i) {
    return ((words[static_cast<size_t>(i / 32)] >> (i % 32)) & 1U) != 0;
  }

  std::vector<float> weights_, gram_, product_, vertex_product_;
  std::vector<cuda::BitWord> fixed_, previous_, vertex_;
  std::vector<float> saliency_;
  cuda::StepState start_;
  DeviceValues<float> d_weights_, d_gram_, d_product_, d_vertex_product_, d_entries_, d_out_;
  DeviceValues<cuda::BitWord> d_fixed_, d_previous_, d_vertex_, d_inside_, d_mask_;
  DeviceValues<float> d_saliency_;
  DeviceValues<cuda::StepState> d_state_;
  DeviceValues<cuda::WindowPass> d_window_;
  DeviceValues<cuda::Selection> d_selection_;
  DeviceValues<unsigned> d_histogram_;
  DeviceValues<double> d_partial_, d_row_sums_;

 private:
  cuda::IterateView<float> it_;
};

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_ITERATE_H_
