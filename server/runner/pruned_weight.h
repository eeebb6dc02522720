// W with the removed weights set to zero.
#ifndef SPARSEFW_SERVER_RUNNER_PRUNED_WEIGHT_H_
#define SPARSEFW_SERVER_RUNNER_PRUNED_WEIGHT_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::server {

// Shapes:  weights, mask [rows, cols]
// Result:  the bytes of a dense row-major matrix in the weights' dtype; kept
//          weights are copied bit for bit, removed ones are +0.
// Errors:  ResourceExhausted  host memory (HOST_MEMORY)
absl::StatusOr<std::vector<std::byte>> PrunedWeight(ConstMatrixView weights, const Mask& mask);

// New weights, whose values are values of `dtype` (F32, F16 or BF16), in that
// dtype. Errors: as above.
absl::StatusOr<std::vector<std::byte>> WeightBytes(const Matrix<float>& weights, DType dtype);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_PRUNED_WEIGHT_H_
