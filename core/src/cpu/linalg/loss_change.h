// By how much the losses of two masks differ, where they differ in few weights:
// core/src/linalg/loss_change_rules.h.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_LOSS_CHANGE_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_LOSS_CHANGE_H_

#include "absl/status/statusor.h"
#include "core/src/linalg/scale.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Whether G_jk = G_kj bit for bit: a row of it is then a column too.
// Cost:   one read of G
// Errors: Cancelled
absl::StatusOr<bool> IsSymmetric(ConstMatrixView gram, const ParallelContext& context);

// L(to) - L(from).
//
// Shapes:  weights [rows, cols], gram [cols, cols] F32 or F64 and symmetric bit for bit;
//          masks [rows, cols]
// Numeric: every product and sum in float64, of the inputs as they are given: its error is
//          that of a loss computed from scratch, 2^-53 of the terms that are added up. `scale`
//          only keeps it in range. The same bits for any number of threads.
// Memory:  8 * cols bytes a thread
// Cost:    2 * cols flops for every weight that differs, with one read of a row of G
// Errors:  Cancelled
absl::StatusOr<double> LossChange(ConstMatrixView weights, ConstMatrixView gram, const Mask& from,
                                  const Mask& to, const Scale& scale,
                                  const ParallelContext& context);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_LOSS_CHANGE_H_
