// What an iteration sums up over the rows.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_STEP_SUMS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_STEP_SUMS_H_

#include <cstdint>

namespace sparsefw::cpu {

// Row by row, and the blocks of rows in order, so that their bits do not depend on the threads.
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

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_STEP_SUMS_H_
