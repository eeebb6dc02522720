// What SparseGPT on the CPU and on the device decide alike: how columns are cut into blocks, and
// the damping, which makes a Gram matrix safe to factorise.
#ifndef SPARSEFW_CORE_SRC_SPARSEGPT_DAMPING_H_
#define SPARSEFW_CORE_SRC_SPARSEGPT_DAMPING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/sparsegpt/inverse_factor.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::sparsegpt {

// How many of `size` weights are pruned: the product of GroupsOf, so that the last block ends at
// exactly its count.
int64_t PrunedOf(int64_t size, double sparsity);

// Columns of a block: `block`, in whole groups of an n:m pattern, at least one,
// and no more than there are.
int64_t BlockColumns(const Pattern& pattern, int64_t block, int64_t cols);

// The damped diagonal of G, as it is factorised, and what was found in it.
struct LiveDiagonal {
  std::vector<int64_t> dead_columns;  // those whose diagonal is 0, ascending
  double mean = 1;                    // of the others
};
// Replaces every zero by the mean of the others; 1 when there is no other.
LiveDiagonal ReplaceDead(std::vector<double>& diagonal);

// The first damping, from `damping` on, with which factorize(damping * mean) finds no failed pivot.
// Errors: those of factorize; InvalidArgument (GRAM_NOT_POSITIVE_DEFINITE)  none up to 1 is enough
absl::StatusOr<double> FindDamping(
    double damping, double mean,
    absl::FunctionRef<absl::StatusOr<std::optional<FailedPivot>>(double added)> factorize);

struct DampedFactor {
  double damping = 0;                 // the one that was enough
  std::vector<int64_t> dead_columns;  // those whose diagonal is 0, ascending
};

// Factorises H = G + damping * mean(diag G) * I, with more damping until it
// succeeds: 0 is followed by 0.01, any other by ten times as much, the last is
// 1. A zero on the diagonal becomes the mean of the others first (1 when there
// is no other), and counts for none.
//
// Shapes:  gram [size, stride], stride >= size, symmetric; out: U of
//          inverse_factor.h in the upper triangle
// Cost:    2/3 size^3 flops a try
// Errors:  Cancelled
//          InvalidArgument  no damping up to 1 is enough (GRAM_NOT_POSITIVE_DEFINITE)
absl::StatusOr<DampedFactor> FactorizeDamped(Matrix<double>& gram, int64_t size, double damping,
                                             const ParallelContext& context);

}  // namespace sparsefw::sparsegpt

#endif  // SPARSEFW_CORE_SRC_SPARSEGPT_DAMPING_H_
