// An iterate of Frank-Wolfe in float32 on the device, for the smoke parts of the iteration's
// kernels.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_ITERATE_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_ITERATE_H_

#include <cstdint>
#include <iterator>
#include <vector>

#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/memory/device_arrays.h"
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
  const float* saliency() const { return saliency_; }
  cuda::BitWord* mask() { return mask_; }
  // Where a product's left operand goes.
  cuda::LeftOperand<float> Operand();

 private:
  template <typename T>
  T* Placed(const std::vector<T>& values) {
    T* array = nullptr;
    arrays_.Add(std::ssize(values), array);
    OrDie(arrays_.status());
    Put(values, array);
    return array;
  }

  std::vector<float> product_, vertex_product_;
  std::vector<cuda::BitWord> previous_, vertex_;
  cuda::DeviceArrays arrays_{nullptr};
  cuda::IterateView<float> it_;
  const float* saliency_ = nullptr;
  const float* columns_ = nullptr;  // of a product: ones
  cuda::BitWord* mask_ = nullptr;
  float* out_ = nullptr;
};

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_ITERATE_H_
