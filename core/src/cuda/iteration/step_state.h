// The state of an iteration on the device beside its matrices.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_STEP_STATE_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_STEP_STATE_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/frank_wolfe/lazy_mask.h"
#include "core/src/frank_wolfe/recurrence.h"

namespace sparsefw::cuda {

struct StepState {
  Recurrence recurrence;
  unsigned long long toggled = 0;  // coordinates, over all steps
  unsigned long long pending = 0;  // of the first step, counted in advance
  double drift = 0;

  // The lazy mask: one scale for all rows. The next pass over the entries makes the rewrite.
  LazyScale scale;
  LazyScale old_scale;
  Rewrite rewrite = Rewrite::kNone;

  // Settings and outcome of the running request.
  int32_t line_search = 0;
  double rel_gap = 0;
  int32_t stopped = 0;  // the gap was reached: kernels do nothing any more
};

// eta_t of the running request.
template <typename Real>
SPARSEFW_HOST_DEVICE double ChooseStep(const StepState& state) {
  return ChooseStep<Real>(state.recurrence, state.line_search != 0);
}

// M_t -> M_{t+1} but for the entries.
SPARSEFW_HOST_DEVICE inline void AdvanceMask(StepState& state, double eta) {
  state.rewrite = AdvanceScale(state.scale, eta, state.old_scale);
}

SPARSEFW_HOST_DEVICE inline double RewrittenEntry(const StepState& state, double x,
                                                  bool in_vertex) {
  return RewrittenEntry(state.rewrite, state.old_scale, x, in_vertex);
}

// With a_t of the vertex that was just chosen.
SPARSEFW_HOST_DEVICE inline void Evaluate(StepState& state, double vertex_inner) {
  EvaluateVertex(state.recurrence, vertex_inner);
  if (ReachedGap(state.recurrence, state.rel_gap)) state.stopped = 1;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_STEP_STATE_H_
