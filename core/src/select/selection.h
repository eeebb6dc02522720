// Exact selection of the highest scores, in the tie order of the library: the
// higher score first; of equal scores the higher row-major index first.
#ifndef SPARSEFW_CORE_SRC_SELECT_SELECTION_H_
#define SPARSEFW_CORE_SRC_SELECT_SELECTION_H_

#include <cstdint>

#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Sets in `kept` the `count` best of the scores that `candidates` marks (null:
// all of them; fewer when there are fewer), in the whole matrix or in every
// run of group_cols columns of every row.
//
// Shapes:  scores [rows, cols] F32, no NaN; candidates, kept [rows, cols]; kept all zero
// Threads: parallel in the calling thread's arena; the result does not depend
//          on their number.
// Cost:    O(rows*cols): four reads of the scores by radix selection for the
//          matrix; nth_element in every group.
void KeepTopOfMatrix(ConstMatrixView scores, const Mask* candidates, int64_t count, Mask& kept);
void KeepTopOfGroups(ConstMatrixView scores, const Mask* candidates, int64_t group_cols,
                     int64_t count, Mask& kept);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SELECT_SELECTION_H_
