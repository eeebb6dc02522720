#include "core/src/sparsegpt/column_sweep.h"

#include <algorithm>
#include <cmath>

#include "core/src/linalg/blas.h"
#include "core/src/linalg/finite.h"
#include "core/src/select/selection.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::sparsegpt {

int64_t PrunedOf(int64_t size, double sparsity) {
  return static_cast<int64_t>(std::floor(static_cast<double>(size) * sparsity));
}

struct ColumnSweep::RowScratch {
  explicit RowScratch(int64_t block) : scores(static_cast<size_t>(block)) {}
  std::vector<double> scores;
  std::vector<Candidate<uint64_t>> candidates;
};

int64_t BlockColumns(const Pattern& pattern, int64_t block, int64_t cols) {
  const int64_t limited = std::min(block, cols);
  if (pattern.kind != Pattern::Kind::kKeepOfGroup) return limited;
  return std::max<int64_t>(1, limited / pattern.group) * pattern.group;
}

ColumnSweep::ColumnSweep(const SweepLayer& layer, const Pattern& pattern, int64_t block,
                         const ParallelContext& context)
    : layer_(layer),
      pattern_(pattern),
      block_(BlockColumns(pattern, block, layer.cols)),
      context_(context),
      factor_(block_, block_),
      errors_(layer.rows, block_),
      pruned_(layer.rows, block_) {
  if (pattern.kind == Pattern::Kind::kUnstructured) scores_ = Matrix<double>(layer.rows, block_);
}

absl::Status ColumnSweep::Run(Mask& mask) {
  for (int64_t begin = 0; begin < layer_.cols; begin += block_) {
    SPARSEFW_RETURN_IF_ERROR(PruneBlock({begin, std::min(begin + block_, layer_.cols)}, mask));
  }
  return absl::OkStatus();
}

absl::Status ColumnSweep::PruneBlock(Block block, Mask& mask) {
  CopyFactor(block);
  if (pattern_.kind == Pattern::Kind::kUnstructured) {
    SPARSEFW_RETURN_IF_ERROR(ChooseInMatrix(block));
  }
  const RowBlocks rows{layer_.rows, std::max<int64_t>(1, RowGrain(block.width()) / 16)};
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(rows.count(), [&](int64_t index) {
    RowScratch scratch(block_);
    for (int64_t row = rows.begin(index); row < rows.end(index); ++row) {
      PruneRow(block, row, scratch, mask);
    }
  }));
  return UpdateLaterColumns(block);
}

// Rows of U lie a whole matrix apart; together they stay in the cache.
void ColumnSweep::CopyFactor(Block block) {
  for (int64_t row = 0; row < block.width(); ++row) {
    std::copy_n(layer_.factor.row(block.begin + row) + block.begin, block.width(),
                factor_.row(row));
  }
}

absl::Status ColumnSweep::ChooseInMatrix(Block block) {
  SPARSEFW_RETURN_IF_ERROR(
      context_.ForEachRow({layer_.rows, RowGrain(block.width())}, [&](int64_t row) {
        const double* weights = layer_.weights.row(row) + block.begin;
        for (int64_t j = 0; j < block.width(); ++j) {
          scores_(row, j) = std::fabs(weights[j]) / factor_(j, j);
        }
      }));
  const int64_t count = PrunedOf(layer_.rows * block.end, pattern_.sparsity) -
                        PrunedOf(layer_.rows * block.begin, pattern_.sparsity);
  return context_.Run([&] {
    MarkLowestOfMatrix(scores_, block.width(), count, pruned_);
    return absl::OkStatus();
  });
}

// Chooses `count` of the columns [first, first + size) of the block.
void ColumnSweep::ChooseInRow(Block block, int64_t row, int64_t first, int64_t size, int64_t count,
                              RowScratch& scratch) {
  const double* weights = layer_.weights.row(row) + block.begin + first;
  for (int64_t j = 0; j < size; ++j) {
    scratch.scores[static_cast<size_t>(j)] = std::fabs(weights[j]) / factor_(first + j, first + j);
  }
  MarkLowest(scratch.scores.data(), size, count, scratch.candidates, pruned_.row(row) + first);
}

void ColumnSweep::PruneRow(Block block, int64_t row, RowScratch& scratch, Mask& mask) {
  const bool groups = pattern_.kind == Pattern::Kind::kKeepOfGroup;
  if (pattern_.kind == Pattern::Kind::kPerRow) {
    const int64_t count =
        PrunedOf(block.end, pattern_.sparsity) - PrunedOf(block.begin, pattern_.sparsity);
    ChooseInRow(block, row, 0, block.width(), count, scratch);
  }
  double* weights = layer_.weights.row(row) + block.begin;
  double* errors = errors_.row(row);
  for (int64_t j = 0; j < block.width(); ++j) {
    if (groups && j % pattern_.group == 0) {
      ChooseInRow(block, row, j, pattern_.group, pattern_.group - pattern_.keep, scratch);
    }
    errors[j] = 0;
    if (pruned_(row, j) == 0) {
      mask.Set(row, block.begin + j, true);
      continue;
    }
    const double* factor = factor_.row(j);
    const double error = weights[j] / factor[j];
    for (int64_t k = j + 1; k < block.width(); ++k) weights[k] -= error * factor[k];
    weights[j] = 0;
    errors[j] = -error;
  }
}

absl::Status ColumnSweep::UpdateLaterColumns(Block block) {
  return Gemm(GemmArgs<double>{.rows = layer_.rows,
                               .cols = layer_.cols - block.end,
                               .depth = block.width(),
                               .a = errors_.data(),
                               .a_stride = block_,
                               .b = layer_.factor.row(block.begin) + block.end,
                               .b_stride = layer_.factor.cols(),
                               .c = layer_.weights.data() + block.end,
                               .c_stride = layer_.weights.cols(),
                               .accumulate = true},
              context_);
}

}  // namespace sparsefw::sparsegpt
