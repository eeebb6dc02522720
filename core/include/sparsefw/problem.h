// One layer to prune: weights, Gram matrix, pattern.
#ifndef SPARSEFW_PROBLEM_H_
#define SPARSEFW_PROBLEM_H_

#include <string_view>

#include "absl/status/status.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw {

class DeviceGram;  // sparsefw/gram.h

// Views only: the caller keeps weights, gram, saliency, warm_mask and
// device_gram alive.
//
// The loss of a mask M (1 = keep) is L(M) = ||WX - (M.W)X||_F^2 = <D, D G>
// with D = W.(1 - M) and G = X X^T: Frank-Wolfe minimises it over the convex
// hull of the masks that meet the pattern.
struct Problem {
  ConstMatrixView weights;  // W [d_out, d_in], F32, F16 or BF16
  ConstMatrixView gram;     // G [d_in, d_in], F32 or F64, symmetric PSD
  Pattern pattern;
  ConstMatrixView saliency;         // optional [d_out, d_in], F32: the caller's own
  const Mask* warm_mask = nullptr;  // optional [d_out, d_in]: meets the pattern exactly
  // Optional: gram, uploaded by the backend that solves this. With a shrinkage it is read only
  // where the backend shrinks_gram.
  const DeviceGram* device_gram = nullptr;
  // The caller has checked the values of weights, gram and saliency before, with
  // ValidateFinite and ValidateGram: they are not read again for that.
  bool values_checked = false;
};

// Reads every value once; unless values_checked.
//
// Errors (each names the matrix, the index and the value; reason in brackets):
//   InvalidArgument  a dimension is 0, gram is not [d_in, d_in], saliency or
//                    warm_mask is not [d_out, d_in] (SHAPE_MISMATCH); dtype
//                    (DTYPE_UNSUPPORTED); NaN or infinity (NON_FINITE);
//                    |G_ij - G_ji| > 1e-3 * max|G| (GRAM_ASYMMETRIC);
//                    G_jj < 0 (GRAM_NEGATIVE_DIAGONAL);
//                    |G_ij| > 1.25 sqrt((G_ii + f) (G_jj + f)) with
//                    f = 1e-3 * max G_kk, which no sum of activations is, not
//                    even one rounded in float16 or bfloat16
//                    (GRAM_NOT_POSITIVE_DEFINITE); pattern
//                    (PATTERN_INVALID); warm mask with a wrong count in a
//                    group (WARM_MASK_COUNT)
absl::Status ValidateProblem(const Problem& problem);

// The parts of it, for callers that hold one matrix only.
absl::Status ValidateFinite(ConstMatrixView matrix, std::string_view name);
absl::Status ValidateGram(ConstMatrixView gram);
absl::Status ValidateMaskCounts(const Mask& mask, const Pattern& pattern, std::string_view name);

}  // namespace sparsefw

#endif  // SPARSEFW_PROBLEM_H_
