#include "core/src/linalg/gram_accumulator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "core/src/linalg/finite.h"
#include "core/src/linalg/widen.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/problem.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

bool IsActivationDType(int32_t dtype) {
  return dtype == static_cast<int32_t>(DType::kF32) || dtype == static_cast<int32_t>(DType::kF16) ||
         dtype == static_cast<int32_t>(DType::kBF16);
}

absl::Status OutOfMemory(int64_t d_in) {
  return Refuse(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                "no memory for a Gram accumulation of d_in=%d", d_in);
}

void CopyTokens(ConstMatrixView from, int64_t first, Matrix<float>& to) {
  ParallelFor(from.rows(), RowGrain(from.cols()), [&](int64_t begin, int64_t end) {
    const auto cols = static_cast<size_t>(from.cols());
    for (int64_t row = begin; row < end; ++row) {
      float* out = to.row(first + row);
      if (from.dtype() == DType::kF16) {
        Widen(from.row<Half>(row), cols, out);
      } else if (from.dtype() == DType::kBF16) {
        Widen(from.row<BFloat16>(row), cols, out);
      } else {
        std::copy_n(from.row<float>(row), cols, out);
      }
    }
  });
}

// The upper triangle of (G + G^T) / 2.
void AddSymmetrised(ConstMatrixView gram, Matrix<double>& sum) {
  constexpr int64_t kTile = 64;  // rows of a tile and columns of its mirror image stay in cache
  ParallelFor(gram.rows(), kTile, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < gram.cols(); first += kTile) {
      const int64_t last = std::min(gram.cols(), first + kTile);
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = std::max(i, first); j < last; ++j) {
          sum(i, j) += ValueAt(gram, i, j) / 2 + ValueAt(gram, j, i) / 2;
        }
      }
    }
  });
}

}  // namespace

absl::Status ValidateChunk(ConstMatrixView chunk, int64_t d_in, int64_t tokens_before) {
  if (chunk.dtype() == DType::kF64 || chunk.dtype() == DType::kBool) {
    return Invalid("DTYPE_UNSUPPORTED",
                   "the dtype of activations must be one of F32, F16, BF16; got %s",
                   DTypeName(chunk.dtype()));
  }
  if (chunk.cols() != d_in || chunk.stride() < chunk.cols() || chunk.rows() < 0) {
    return Invalid("SHAPE_MISMATCH",
                   "activations must be [tokens, %d]; got [%d, %d] with stride %d", d_in,
                   chunk.rows(), chunk.cols(), chunk.stride());
  }
  const std::optional<NonFinite> found = FindTooLarge(chunk);
  if (!found) return absl::OkStatus();
  if (!std::isfinite(found->value)) {
    return Invalid("NON_FINITE", "activations must be finite; got activations[%d, %d]=%g",
                   tokens_before + found->row, found->col, found->value);
  }
  return Invalid(
      "NON_FINITE",
      "activations must be below %.2g in size, so that sums of their squares are finite; "
      "got activations[%d, %d]=%g",
      kTooLargeActivation, tokens_before + found->row, found->col, found->value);
}

absl::Status ValidatePartialGram(ConstMatrixView gram, int64_t d_in, int64_t token_count) {
  if (gram.rows() != d_in || gram.cols() != d_in) {
    return Invalid("SHAPE_MISMATCH", "gram must be [%d, %d]; got [%d, %d]", d_in, d_in, gram.rows(),
                   gram.cols());
  }
  if (token_count < 0) {
    return Invalid("OPTION_INVALID", "token_count must be at least 0; got %d", token_count);
  }
  return ValidateGram(gram);
}

absl::StatusOr<std::unique_ptr<GramAccumulator>> CpuGramAccumulator::Create(int64_t d_in,
                                                                            int threads) {
  if (d_in < 1) {
    return Invalid("SHAPE_MISMATCH", "d_in must be at least 1; got %d", d_in);
  }
  SPARSEFW_RETURN_IF_ERROR(ValidateThreads(threads));
  try {
    return std::unique_ptr<GramAccumulator>(new CpuGramAccumulator(d_in, threads));
  } catch (const std::bad_alloc&) {
    return OutOfMemory(d_in);
  }
}

absl::Status CpuGramAccumulator::Add(ConstMatrixView chunk) {
  const absl::Status status = context_.Run([&] {
    SPARSEFW_RETURN_IF_ERROR(ValidateChunk(chunk, d_in(), token_count_));
    return chunk.rows() == 0 ? absl::OkStatus() : AddRows(chunk);
  });
  if (status.ok()) token_count_ += chunk.rows();
  return status;
}

absl::Status CpuGramAccumulator::AddRows(ConstMatrixView chunk) {
  const auto direct = [&](int64_t rows) {  // a block that need not be copied
    return chunk.dtype() == DType::kF32 && waiting_ == 0 && rows >= kGramBlockTokens;
  };
  const bool all_direct = direct(chunk.rows()) && chunk.rows() % kGramBlockTokens == 0;
  if (block_.size() == 0 && !all_direct) {
    try {
      // The one allocation comes before the first change of the sum.
      block_ = Matrix<float>(kGramBlockTokens, d_in());
    } catch (const std::bad_alloc&) {
      return OutOfMemory(d_in());
    }
  }
  for (int64_t first = 0; first < chunk.rows();) {
    const int64_t left = chunk.rows() - first;
    if (direct(left)) {
      product_.Add(kGramBlockTokens, chunk.row<float>(first), chunk.stride(), sum_.data());
      first += kGramBlockTokens;
      continue;
    }
    const int64_t count = std::min(kGramBlockTokens - waiting_, left);
    CopyTokens(chunk.Rows(first, count), waiting_, block_);
    waiting_ += count;
    first += count;
    if (waiting_ == kGramBlockTokens) AddBlock(kGramBlockTokens);
  }
  return absl::OkStatus();
}

void CpuGramAccumulator::AddBlock(int64_t tokens) {
  product_.Add(tokens, block_.data(), d_in(), sum_.data());
  waiting_ = 0;
}

absl::Status CpuGramAccumulator::AddGram(ConstMatrixView gram, int64_t token_count) {
  const absl::Status status = context_.Run([&] {
    SPARSEFW_RETURN_IF_ERROR(ValidatePartialGram(gram, d_in(), token_count));
    AddSymmetrised(gram, sum_);
    return absl::OkStatus();
  });
  if (status.ok()) token_count_ += token_count;
  return status;
}

absl::Status CpuGramAccumulator::CopyRows(int64_t first, int64_t count, double* rows) {
  return context_.Run([&] {
    if (waiting_ > 0) AddBlock(waiting_);
    constexpr int64_t kTile = 64;
    // Columns of the sum's upper triangle are read in tiles, not one by one.
    ParallelFor(d_in(), kTile, [&](int64_t begin, int64_t end) {
      for (int64_t left = begin; left < end; left += kTile) {
        const int64_t right = std::min(end, left + kTile);
        for (int64_t i = first; i < first + count; ++i) {
          double* row = rows + (i - first) * d_in();
          for (int64_t j = left; j < right; ++j) row[j] = i <= j ? sum_(i, j) : sum_(j, i);
        }
      }
    });
    return absl::OkStatus();
  });
}

// Tokens that wait are float32 whatever they came as: widening is exact.
absl::Status CpuGramAccumulator::SaveState(GramStateSink sink) {
  SPARSEFW_RETURN_IF_ERROR(WriteGramStateHeader(d_in(), token_count_, waiting_, DType::kF32, sink));
  SPARSEFW_RETURN_IF_ERROR(WriteUpperRows(sum_.data(), 0, d_in(), d_in(), sink));
  const auto tokens = block_.span().first(static_cast<size_t>(waiting_ * d_in()));
  return tokens.empty() ? absl::OkStatus() : sink(std::as_bytes(tokens));
}

absl::Status CpuGramAccumulator::RestoreState(GramStateSource source) {
  SPARSEFW_ASSIGN_OR_RETURN(const GramStateHeader header, ReadGramStateHeader(d_in(), source));
  SPARSEFW_RETURN_IF_ERROR(ReadUpperRows(sum_.data(), 0, d_in(), d_in(), source));
  token_count_ = header.token_count;
  if (header.waiting == 0) return absl::OkStatus();
  const auto dtype = static_cast<DType>(header.dtype);
  try {
    block_ = Matrix<float>(kGramBlockTokens, d_in());
    std::vector<double> tokens((static_cast<size_t>(header.waiting * d_in()) * SizeOf(dtype) + 7) /
                               sizeof(double));
    SPARSEFW_RETURN_IF_ERROR(
        source(std::as_writable_bytes(std::span(tokens))
                   .first(static_cast<size_t>(header.waiting * d_in()) * SizeOf(dtype))));
    return context_.Run([&] {
      CopyTokens(ConstMatrixView(tokens.data(), dtype, header.waiting, d_in()), 0, block_);
      waiting_ = header.waiting;
      return absl::OkStatus();
    });
  } catch (const std::bad_alloc&) {
    return OutOfMemory(d_in());
  }
}

absl::Status WriteGramStateHeader(int64_t d_in, int64_t token_count, int64_t waiting, DType dtype,
                                  GramStateSink sink) {
  const GramStateHeader header = {.d_in = d_in,
                                  .token_count = token_count,
                                  .waiting = waiting,
                                  .dtype = static_cast<int32_t>(dtype)};
  return sink(std::as_bytes(std::span(&header, 1)));
}

absl::StatusOr<GramStateHeader> ReadGramStateHeader(int64_t d_in, GramStateSource source) {
  GramStateHeader header;
  SPARSEFW_RETURN_IF_ERROR(source(std::as_writable_bytes(std::span(&header, 1))));
  const bool valid = header.magic == GramStateHeader::kMagic && header.d_in == d_in &&
                     header.waiting >= 0 && header.waiting < kGramBlockTokens &&
                     header.token_count >= header.waiting && IsActivationDType(header.dtype);
  if (valid) return header;
  return Invalid("GRAM_STATE_INVALID",
                 "the state of a Gram accumulation must be one of d_in=%d; got %s", d_in,
                 header.magic == GramStateHeader::kMagic ? "another one" : "something else");
}

absl::Status WriteUpperRows(const double* rows, int64_t first, int64_t count, int64_t d_in,
                            GramStateSink sink) {
  for (int64_t i = 0; i < count; ++i) {
    const std::span<const double> upper(rows + i * d_in + first + i,
                                        static_cast<size_t>(d_in - first - i));
    SPARSEFW_RETURN_IF_ERROR(sink(std::as_bytes(upper)));
  }
  return absl::OkStatus();
}

absl::Status ReadUpperRows(double* rows, int64_t first, int64_t count, int64_t d_in,
                           GramStateSource source) {
  for (int64_t i = 0; i < count; ++i) {
    const std::span<double> upper(rows + i * d_in + first + i,
                                  static_cast<size_t>(d_in - first - i));
    SPARSEFW_RETURN_IF_ERROR(source(std::as_writable_bytes(upper)));
  }
  return absl::OkStatus();
}

}  // namespace sparsefw
