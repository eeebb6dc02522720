// From V_{t-1} to V_t: the relaxed mask's toggles and the vertex product.
//
//   U_t = U_s + delta G        delta = D(V_t) - D(V_s)        s = t-1 or t-2
//
// delta has one entry for every coordinate in which the vertices differ; s is that of the nearer
// one (iterate.h). A panel of G (panels.h) is used for every row of the matrix before the next one
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

// What changed between two vertices, in all rows.
struct VertexDistance {
  int64_t toggled = 0;  // coordinates in which V_t and V_{t-1} differ
  int64_t terms = 0;    // the same, V_t and the nearer one of V_{t-1} and V_{t-2}
};

// Each way to do it returns b_t - b_{t-1}, b = <D(V), U>, from b_t - b_s: with G symmetric
// <delta, U_s + U_t>, summed in float64 row by row and the rows block by block. s is
// the same for all rows.
template <typename Real>
class VertexUpdate {
 public:
  // All of them must outlive it.
  VertexUpdate(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed, const ParallelContext& context);

  absl::StatusOr<VertexDistance> CountToggles();

  // Toggles alone, no product. Where the older vertex is tracked it becomes V_{t-1}, with U_{t-1},
  // and U_t is to be formed in its place.
  absl::Status Toggle();
  // After it, with b_t of each row.
  void SetLosses(const std::vector<double>& losses);

  // After CountToggles. Calls then(block) for every block of rows when its U_t
  // is complete and some of it still in the cache; concurrently. `last`: U is formed anew
  // after it, so that an older vertex is of no use unless one is tracked already.
  absl::StatusOr<double> Apply(absl::FunctionRef<void(int64_t)> then, bool last = false);

  // Gives back what Apply keeps from one iteration to the next.
  void Release() { std::vector<SparseRows<Real>>().swap(delta_); }

 private:
  void ToggleRow(int64_t row);
  void CollectTerms(int64_t row, SparseRows<Real>& terms);
  double MoveOn(int64_t row, double inner);
  double Inner(int64_t row, std::span<const Term<Real>> terms) const;
  absl::Status CollectBlocks(int64_t first, int64_t end);
  int64_t EndOfGroup(int64_t first_block) const;

  Iterate<Real>& iterate_;
  RelaxedMask<Real>& relaxed_;
  const ParallelContext& context_;
  bool back_ = false;                    // s is t - 2
  std::vector<VertexDistance> counts_;   // of each block; terms: from V_{t-2}
  std::vector<double> changes_;          // of each row
  std::vector<double> block_changes_;    // of each block
  std::vector<SparseRows<Real>> delta_;  // of each block of the group at work
};

// Bytes that Apply holds at most.
int64_t VertexUpdateBytes(int64_t rows, int64_t cols, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_VERTEX_UPDATE_H_
