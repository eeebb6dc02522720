// The saliency of single weights, computed where it is asked for instead of held as a matrix: of
// the scores of a layer a solve reads few, and only while it rounds.
#ifndef SPARSEFW_SALIENCY_SOURCE_H_
#define SPARSEFW_SALIENCY_SOURCE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sparsefw/dtype.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Either a matrix of scores, or weights W with what the formulas of saliency.h need beside them:
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

  ConstMatrixView values_;  // the scores, or W where there are terms
  std::shared_ptr<const Terms> terms_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_SALIENCY_SOURCE_H_
