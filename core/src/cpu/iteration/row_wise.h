// Many iterations of one row before the next row is begun.
//
// Where rows do not share a budget and the step sizes are known beforehand
// (open loop), nothing ties a row to the others. Its E, U and W then stay in
// the first cache, and the rows of G that its few zigzagging coordinates ask for
// again and again in the second, while passes over the whole matrix would read
// all of it from memory in every iteration.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_ROW_WISE_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_ROW_WISE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/iteration/vertex_update.h"
#include "core/src/cpu/select/row_selector.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw::cpu {

// Sums over the rows, of one iteration: row by row, and the blocks of rows in
// order, so that their bits do not depend on the threads.
struct StepSums {
  double vertex_loss_change = 0;  // b_t - b_{t-1}
  double vertex_inner = 0;        // a_{t+1} = <D(V_{t+1}), E_{t+1}>
  int64_t toggled = 0;            // |V_t xor V_{t-1}|, zero weights left out

  void Add(const StepSums& other) {
    vertex_loss_change += other.vertex_loss_change;
    vertex_inner += other.vertex_inner;
    toggled += other.toggled;
  }
};

template <typename Real>
struct RowWiseSteps {
  Iterate<Real>& iterate;
  RelaxedMask<Real>& relaxed;
  VertexUpdate<Real>& update;
  RowSelector<Real>& selector;
  const ParallelContext& context;

  // Open-loop iterations first .. first + count - 1 of every row.
  // Errors: Cancelled; rows are then at different iterations, each consistent
  absl::StatusOr<std::vector<StepSums>> Take(int64_t first, int64_t count);

 private:
  void TakeOnAllColumns(int64_t block, int64_t first, std::vector<StepSums>& sums);
  void TakeOnFreeColumns(int64_t block, int64_t first, std::vector<StepSums>& sums);
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_ROW_WISE_H_
