// The linear minimisation step: which vertex of the polytope the gradient
// points to.
//
//   V = in every group the (free capacity) free coordinates with the largest
//       score s = W.E, only those with s > 0; of equal scores the higher index
//
// Selection is fused with the update of E, so that one pass over W, E and U
// does both.
#ifndef SPARSEFW_CORE_SRC_CPU_SELECT_VERTEX_SELECTOR_H_
#define SPARSEFW_CORE_SRC_CPU_SELECT_VERTEX_SELECTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "core/src/cpu/iteration/iterate.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw::cpu {

template <typename Real>
class RowSelector;

// Keeps what it learnt from earlier selections, its guesses. The vertex never depends on them, only
// the time it takes and, where one budget serves the matrix, the last bits of <D_V, E>: it is
// summed in another order where a guess was wrong.
template <typename Real>
class VertexSelector {
 public:
  virtual ~VertexSelector() = default;

  // E += step * (U - E) on the rows of the block, and whatever of the
  // selection can be done there. Distinct blocks concurrently.
  virtual void Scan(int64_t block, Real step) = 0;

  // After Scan of every block: completes iterate.vertex and returns <D_V, E>,
  // summed row by row and the rows block by block.
  virtual absl::StatusOr<double> Finish() = 0;

  // Gives back memory that is kept from one iteration to the next.
  virtual void Release() {}

  // The bytes of its guesses, for a checkpoint.
  virtual std::span<std::byte> guesses() = 0;

  // The selector of single rows; null where one budget serves the whole matrix.
  virtual RowSelector<Real>* rows() { return nullptr; }
};

// What is passed must outlive the selector; iterate.fixed is final.
template <typename Real>
std::unique_ptr<VertexSelector<Real>> MakeVertexSelector(Iterate<Real>& iterate,
                                                         const ParallelContext& context);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SELECT_VERTEX_SELECTOR_H_
