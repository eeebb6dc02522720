// Exact selection of the scores to prune, in the tie order of the library: the
// lower score first; of equal scores the lower row-major index first.
#ifndef SPARSEFW_CORE_SRC_SELECT_LOWEST_SCORES_H_
#define SPARSEFW_CORE_SRC_SELECT_LOWEST_SCORES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Sets marks[i] to 1 for the `count` lowest of scores[0 .. size), to 0 for the
// others. `scratch` is the caller's, so that a loop allocates once.
void MarkLowest(const double* scores, int64_t size, int64_t count, std::vector<int64_t>& scratch,
                uint8_t* marks);

// The same over the first `width` columns of a matrix.
//
// Shapes:  scores [rows, >= width], >= 0; marks [rows, >= width]
// Cost:    O(rows*width): four parallel reads; the few scores whose leading 15
//          bits are those of the threshold are compared on one thread.
// Errors:  Cancelled
absl::Status MarkLowestOfMatrix(const Matrix<double>& scores, int64_t width, int64_t count,
                                const ParallelContext& context, Matrix<uint8_t>& marks);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SELECT_LOWEST_SCORES_H_
