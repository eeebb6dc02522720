// Saliency: how much a single weight seems to matter. Baselines, and the warm
// start and fixed set of SparseFW.
//
//   magnitude  S_ij = |W_ij|
//   Wanda      S_ij = |W_ij| * sqrt(G_jj)                        Sun et al. 2023
//   RIA        S_ij = |W_ij| * (1/sum_k |W_ik| + 1/sum_k |W_kj|) * sqrt(G_jj)^a
//                                                                Zhang et al. 2024
//
// Deviations: (1) RIA's a is 0.5 by default, as in its authors' code; the
// SparseFW paper prints a = 1. (2) A zero row or column sum contributes 0
// where the authors' code makes NaN and so keeps the weight. (3) Wanda's
// published code divides G_jj by the number of samples; a common factor, it
// changes no mask.
#ifndef SPARSEFW_SALIENCY_H_
#define SPARSEFW_SALIENCY_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw {

enum class SaliencyMethod { kMagnitude, kWanda, kRia };
std::string_view NameOf(SaliencyMethod method);  // "wanda"

struct SaliencyOptions {
  SaliencyMethod method = SaliencyMethod::kWanda;
  double ria_exponent = 0.5;  // >= 0, finite
};

// Shapes:  weights    [rows, cols], F32, F16 or BF16
//          gram_diag  [cols], >= 0; not read for kMagnitude (may be empty)
// Result:  [rows, cols] F32. Where the largest sqrt(G_jj)^a is not in [2^-20, 2^21), all scores are
//          divided by its power of two, so that they stay in range; their order is the same
// Numeric: row and column sums in float64, the score in float64, stored as
//          fp32; identical for any number of threads.
// Threads: uses the calling thread's TBB arena. Safe to call concurrently.
// Cost:    O(rows*cols), two reads of weights for RIA, else one.
// Errors:  InvalidArgument  shape mismatch, negative or non-finite exponent, or one with which
//          sqrt(G_jj)^a overflows
absl::StatusOr<Matrix<float>> ComputeSaliency(ConstMatrixView weights,
                                              std::span<const double> gram_diag,
                                              const SaliencyOptions& options);

// The saliency of single weights, computed where it is asked for instead of held as a matrix: of
// the scores of a layer a solve reads few, and only while it rounds.
//
// Either a matrix of scores, or weights W with what the formulas above need beside them:
//
//   S_ij = |W_ij| * (row_i + column_j) * factor_j     without row and column: |W_ij| * factor_j
//
// Shapes:  matrix [rows, cols] F32; weights [rows, cols] F32, F16 or BF16
// Numeric: in float64, rounded once to float32: the same bits whenever it is asked for
// Memory:  refers to the matrix or the weights, which must outlive it; 8 bytes a row and 16 a
//          column beside them, shared by copies
// Threads: immutable; safe to read concurrently
// Cost:    of a score about that of its weight's conversion
class SaliencySource {
 public:
  // Each [rows] or [cols]; row and column empty but for RIA.
  struct Terms {
    std::vector<double> row;
    std::vector<double> column;
    std::vector<double> factor;
  };

  SaliencySource() = default;
  // Scores of the caller's. Implicit: a view of scores is all that most callers have.
  SaliencySource(ConstMatrixView scores)
      : values_(scores) {}  // NOLINT(google-explicit-constructor)
  SaliencySource(ConstMatrixView weights, Terms terms)
      : values_(weights), terms_(std::make_shared<const Terms>(std::move(terms))) {}

  int64_t rows() const { return values_.rows(); }
  int64_t cols() const { return values_.cols(); }
  // The scores, or W where there are terms.
  const ConstMatrixView& values() const { return values_; }
  const Terms* terms() const { return terms_.get(); }

  float At(int64_t row, int64_t col) const {
    if (values_.dtype() == DType::kF32) return Score(values_.row<float>(row)[col], row, col);
    float weight = 0;
    const auto offset = static_cast<size_t>(col) * SizeOf(values_.dtype());
    ConvertToFloat(values_.row_bytes(row) + offset, values_.dtype(), 1, &weight);
    return Score(weight, row, col);
  }

  // out: cols() values.
  void CopyRow(int64_t row, float* out) const {
    ConvertToFloat(values_.row_bytes(row), values_.dtype(), static_cast<size_t>(cols()), out);
    if (terms_ == nullptr) return;
    for (int64_t col = 0; col < cols(); ++col) out[col] = Score(out[col], row, col);
  }

 private:
  float Score(float value, int64_t row, int64_t col) const {
    if (terms_ == nullptr) return value;
    const auto i = static_cast<size_t>(row);
    const auto j = static_cast<size_t>(col);
    const double share = terms_->row.empty() ? 1.0 : terms_->row[i] + terms_->column[j];
    return static_cast<float>(std::fabs(static_cast<double>(value)) * share * terms_->factor[j]);
  }

  ConstMatrixView values_;
  std::shared_ptr<const Terms> terms_;
};

// The same scores, each computed when it is asked for: bit for bit those of ComputeSaliency.
// `weights` must outlive it.
// Threads: uses the calling thread's TBB arena for RIA. Safe to call concurrently.
// Cost:    for RIA two reads of weights, else none; a root or power a column
// Errors:  InvalidArgument  as ComputeSaliency
absl::StatusOr<SaliencySource> MakeSaliencySource(ConstMatrixView weights,
                                                  std::span<const double> gram_diag,
                                                  const SaliencyOptions& options);

// All of them, [rows, cols]. Threads: uses the calling thread's TBB arena.
Matrix<float> ScoresOf(const SaliencySource& source);

// Keeps the highest scores of every group.
//
// Ties, everywhere in this library: the higher score is kept; of equal scores
// the higher row-major index is kept (what a stable ascending sort that prunes
// from the front does). Scores must not be NaN.
//
// Shapes:  scores [rows, cols] F32, stride >= cols
// Cost:    O(rows*cols) expected, by selection, not by sorting.
// Errors:  InvalidArgument  as ValidatePattern
absl::StatusOr<Mask> TopScores(ConstMatrixView scores, const Pattern& pattern);

// The fixed set of SparseFW: of the warm start's kept weights, the alpha
// fraction with the highest saliency, which the solver never removes.
//
//   unstructured  the top floor(alpha*k) of the matrix
//   per_row       the top floor(alpha*k_row) of each row
//   n:m           the top floor(alpha*k_row) of each row of the warm-start
//                 mask, k_row = keep*cols/group: flooring group by group would
//                 leave a handful of distinct values of alpha
//
// `warm` meets the pattern exactly; the set is always a subset of it.
// Errors:  InvalidArgument  alpha outside [0, 1] or NaN, shape mismatch
absl::StatusOr<Mask> FixedSet(ConstMatrixView scores, const Mask& warm, const Pattern& pattern,
                              double alpha);

// The groups of the fixed set, with its counts: the whole matrix, or every row. The pattern must be
// valid, alpha in [0, 1].
Groups FixedGroups(const Pattern& pattern, int64_t rows, int64_t cols, double alpha);

}  // namespace sparsefw

#endif  // SPARSEFW_SALIENCY_H_
