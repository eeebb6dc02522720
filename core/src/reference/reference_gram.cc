#include "core/src/reference/reference_gram.h"

#include <algorithm>
#include <vector>

#include "core/src/linalg/finite.h"
#include "core/src/linalg/gram_accumulator.h"
#include "core/src/linalg/gram_state.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {

absl::Status ReferenceGramAccumulator::Add(ConstMatrixView chunk) {
  SPARSEFW_RETURN_IF_ERROR(ValidateChunk(chunk, d_in(), token_count_));
  std::vector<double> x(static_cast<size_t>(d_in()));
  for (int64_t token = 0; token < chunk.rows(); ++token) {
    ConvertToDouble(chunk.row_bytes(token), chunk.dtype(), x.size(), x.data());
    for (size_t i = 0; i < x.size(); ++i) {
      double* row = sum_.row(static_cast<int64_t>(i));
      for (size_t j = 0; j < x.size(); ++j) row[j] += x[i] * x[j];
    }
  }
  token_count_ += chunk.rows();
  return absl::OkStatus();
}

absl::Status ReferenceGramAccumulator::AddGram(ConstMatrixView gram, int64_t token_count) {
  SPARSEFW_RETURN_IF_ERROR(ValidatePartialGram(gram, d_in(), token_count));
  for (int64_t i = 0; i < d_in(); ++i) {
    for (int64_t j = 0; j < d_in(); ++j) {
      sum_(i, j) += (ValueAt(gram, i, j) + ValueAt(gram, j, i)) / 2;
    }
  }
  token_count_ += token_count;
  return absl::OkStatus();
}

absl::Status ReferenceGramAccumulator::CopyRows(int64_t first, int64_t count, double* rows) {
  std::copy_n(sum_.row(first), count * d_in(), rows);
  return absl::OkStatus();
}

// The sum is exactly symmetric: x_i x_j is x_j x_i.
absl::Status ReferenceGramAccumulator::SaveState(GramStateSink sink) {
  SPARSEFW_RETURN_IF_ERROR(WriteGramStateHeader(d_in(), token_count_, 0, DType::kF32, sink));
  return WriteUpperRows(sum_.data(), 0, d_in(), d_in(), sink);
}

absl::Status ReferenceGramAccumulator::RestoreState(GramStateSource source) {
  SPARSEFW_ASSIGN_OR_RETURN(const GramStateHeader header, ReadGramStateHeader(d_in(), source));
  if (header.waiting > 0) {
    return Invalid("GRAM_STATE_INVALID",
                   "the reference takes no state with tokens that wait; got %d of them",
                   header.waiting);
  }
  SPARSEFW_RETURN_IF_ERROR(ReadUpperRows(sum_.data(), 0, d_in(), d_in(), source));
  for (int64_t i = 0; i < d_in(); ++i) {
    for (int64_t j = i + 1; j < d_in(); ++j) sum_(j, i) = sum_(i, j);
  }
  token_count_ = header.token_count;
  return absl::OkStatus();
}

}  // namespace sparsefw
