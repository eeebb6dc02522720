// Chooses how U is updated by how many coordinates toggle.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_UPDATE_FORM_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_UPDATE_FORM_H_

#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// U_t = U_{t-1} + Delta G, a row of G for every toggle or in tiles; or D(V_t) G.
enum class UpdateForm { kRows, kTiles, kDense };
inline constexpr int kUpdateForms = 3;

struct FormOptions {
  bool tiles = false;  // the layer can be updated in tiles
  ProductPrecision precision = ProductPrecision::kFloat32;
  double tiled_share = -1;  // of EngineTuning
  double dense_share = -1;
};

// The form for iterations in which `share` of the coordinates toggles. From which
// share on another form is the faster one is derived from data sheets
// (docs/benchmarks/gpu-log.md), not measured. TF32 at 4096 x 4096: tiles take some
// 0.22 ms for each percent that toggles, a dense product at 400 TFLOP/s 0.34 ms,
// which is what 1.5 % cost.
inline UpdateForm ChooseForm(double share, const FormOptions& options) {
  double tiled = 0.006;
  double dense = options.tiles ? 0.2 : 0.05;
  if (options.precision == ProductPrecision::kTf32) dense = options.tiles ? 0.015 : 0.006;
  if (options.precision == ProductPrecision::kBf16) dense = options.tiles ? 0.02 : 0.003;
  if (options.tiled_share >= 0) tiled = options.tiled_share;
  if (options.dense_share >= 0) dense = options.dense_share;
  if (share > dense) return UpdateForm::kDense;
  return options.tiles && share > tiled ? UpdateForm::kTiles : UpdateForm::kRows;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_UPDATE_FORM_H_
