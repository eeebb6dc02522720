// Chooses how U is updated by how many coordinates toggle.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_UPDATE_FORM_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_UPDATE_FORM_H_

#include "sparsefw/engine_details.h"

namespace sparsefw::cuda {

// U_t = U_{t-1} + Delta G, a row of G for every toggle; or D(V_t) G.
enum class UpdateForm { kRows, kDense };
inline constexpr int kUpdateForms = 2;

struct FormOptions {
  ProductPrecision precision = ProductPrecision::kFloat32;
  double dense_share = -1;  // of EngineTuning
};

// The form for iterations in which `share` of the coordinates toggles and a dense product is a sum
// of so many float16 ones. Measured on an H100 at 4096 x 4096 (docs/benchmarks/gpu-log.md): rows of
// G take 0.32 ms for each percent that toggles. A dense product takes 0.69, 0.5 or 0.3 ms with what
// goes with it. A product in float64 takes 2.2 ms, where rows take twice the bytes.
template <typename Real>
UpdateForm ChooseForm(double share, int products, const FormOptions& options) {
  double dense = products == 3 ? 0.021 : products == 2 ? 0.015 : 0.009;
  if (sizeof(Real) == sizeof(double)) dense = 0.04;
  if (options.dense_share >= 0) dense = options.dense_share;
  return share > dense ? UpdateForm::kDense : UpdateForm::kRows;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_UPDATE_FORM_H_
