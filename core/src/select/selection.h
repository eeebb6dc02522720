// Exact selection of the highest scores, in the tie order of the library: the
// higher score first; of equal scores the higher row-major index first.
#ifndef SPARSEFW_CORE_SRC_SELECT_SELECTION_H_
#define SPARSEFW_CORE_SRC_SELECT_SELECTION_H_

#include <cstdint>
#include <vector>

#include "core/src/select/group_select.h"
#include "core/src/select/ordered_key.h"
#include "sparsefw/kernel_types.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// In every group the best of the scores that `candidates` marks (null: all of them), as many as
// its capacity; fewer when there are fewer.
//
// Shapes:  scores [rows, cols] F32, no NaN; candidates and the result [rows, cols]
// Threads: as ParallelFor; the result does not depend on their number.
// Cost:    O(rows*cols): five reads of the scores for the matrix, one for groups
Mask KeepTop(ConstMatrixView scores, const Mask* candidates, const Groups& groups);

// The rest: sets marks[i] to 1 for the `count` lowest of scores[0 .. size), of
// equal scores the lower index, and to 0 for the others. `scratch` is the
// caller's, so that a loop allocates once.
template <typename Real>
using KeyOf = decltype(OrderedKey(Real()));
template <typename Real>
void MarkLowest(const Real* scores, int64_t size, int64_t count,
                std::vector<Candidate<KeyOf<Real>>>& scratch, uint8_t* marks);

// The same over the first `width` columns of a matrix, of equal scores the lower
// row-major index.
//
// Shapes:  scores [rows, >= width]; marks [rows, >= width]
// Threads: as ParallelFor
// Cost:    O(rows*width): eight reads
template <typename Real>
void MarkLowestOfMatrix(const Matrix<Real>& scores, int64_t width, int64_t count,
                        Matrix<uint8_t>& marks);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SELECT_SELECTION_H_
