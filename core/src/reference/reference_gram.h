// Gram accumulation, dense and in float64, one token after the other.
#ifndef SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_GRAM_H_
#define SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_GRAM_H_

#include "sparsefw/gram.h"

namespace sparsefw {

class ReferenceGramAccumulator final : public GramAccumulator {
 public:
  explicit ReferenceGramAccumulator(int64_t d_in) : sum_(d_in, d_in) {}

  absl::Status Add(ConstMatrixView chunk) override;
  absl::Status AddGram(ConstMatrixView gram, int64_t token_count) override;
  int64_t d_in() const override { return sum_.cols(); }
  int64_t token_count() const override { return token_count_; }
  absl::Status CopyRows(int64_t first, int64_t count, double* rows) override;
  absl::Status SaveState(GramStateSink sink) override;
  absl::Status RestoreState(GramStateSource source) override;

 private:
  Matrix<double> sum_;
  int64_t token_count_ = 0;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_GRAM_H_
