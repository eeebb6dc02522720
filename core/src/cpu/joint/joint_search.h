// The joint search on the CPU: sparsefw/joint.h says what it computes, tableau.h on
// what, row_search.h how a row is searched.
#ifndef SPARSEFW_CORE_SRC_CPU_JOINT_JOINT_SEARCH_H_
#define SPARSEFW_CORE_SRC_CPU_JOINT_JOINT_SEARCH_H_

#include "absl/status/statusor.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"

namespace sparsefw::cpu {

// A row is taken only if its rounded weights lose less than those it started with, by
// kRowGuard, in float64.
//
// Numeric: tableaus in `precision`, b and the losses that decide in float64
// Threads: rows in parallel; the same bits for any number of threads unless cut short
// Memory:  JointSearchBytes
// Cost:    about n^2 |S| + |S|^3 / 3 flops a row, n columns in doubt, and n^2 a few
//          times for every 16 exchanges
// Stop:    rows not begun keep the start
absl::StatusOr<JointResult> SearchJointly(Precision precision, const EngineProblem& problem,
                                          const Scale& scale, const Mask& start,
                                          const JointRequest& request,
                                          const ParallelContext& context);

int64_t JointSearchBytes(int64_t rows, int64_t cols, int threads, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_JOINT_JOINT_SEARCH_H_
