// From V_{t-1} to V_t: the relaxed mask's toggles and the vertex product.
//
//   U_t = U_{t-1} + delta G        delta = D(V_t) - D(V_{t-1})
//
// delta has one entry for every coordinate that entered or left the vertex. A
// panel of G (panels.h) is used for every row of the matrix before the next one
// is taken, so that G comes from beyond the L2 cache once an iteration, not
// once for every entry of delta.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_VERTEX_UPDATE_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_VERTEX_UPDATE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw::cpu {

// Each way to do it returns b_t - b_{t-1}, b = <D(V), U>: with G
// symmetric, <delta, U_{t-1} + U_t>, summed in float64 row by row and the rows
// block by block. Both ways give the same bits.
template <typename Real>
class VertexUpdate {
 public:
  // All of them must outlive it.
  VertexUpdate(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed, const ParallelContext& context);

  // The coordinates in which iterate.previous and iterate.vertex differ.
  absl::StatusOr<int64_t> CountToggles();

  // Toggles alone, no product.
  absl::Status Toggle();

  // After CountToggles. Calls then(block) for every block of rows when its U_t
  // is complete and some of it still in the cache; concurrently.
  absl::StatusOr<double> Apply(absl::FunctionRef<void(int64_t)> then);

  // One row, on the calling thread; distinct rows concurrently.
  double ApplyToRow(int64_t row, SparseRows<Real>& scratch);

  // Bytes that Apply holds at most.
  static int64_t ScratchBytes(int64_t rows, int64_t cols);

 private:
  template <typename Changed>  // changed(col, entered)
  void ToggleRow(int64_t row, const Changed& changed);
  void CollectTerms(int64_t row, SparseRows<Real>& terms);
  double Inner(int64_t row, std::span<const Term<Real>> terms) const;
  absl::Status CollectBlocks(int64_t first, int64_t end);
  absl::Status AddProducts(int64_t first, int64_t end);
  int64_t EndOfGroup(int64_t first_block) const;

  Iterate<Real>& iterate_;
  RelaxedMask<Real>& relaxed_;
  const ParallelContext& context_;
  std::vector<int64_t> toggles_;         // of each block
  std::vector<double> changes_;          // of each row
  std::vector<double> block_changes_;    // of each block
  std::vector<SparseRows<Real>> delta_;  // of each block of the group at work
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_VERTEX_UPDATE_H_
