#include "core/src/sparsegpt/sparsegpt.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/src/linalg/blas.h"
#include "core/src/linalg/finite.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/reconstruct/rounded_value.h"
#include "core/src/select/selection.h"
#include "core/src/sparsegpt/damping.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace sparsegpt {
namespace {

using Layer = ScaledLayer<double>;

// The sweep over the columns. Rows are independent of each other but for the choice of an
// unstructured block. Lives for one call of Run.
class ColumnSweep {
 public:
  // layer: its gram has become U, read on and above the diagonal.
  // Memory: 9 bytes for every weight of a block, 8 more when unstructured.
  ColumnSweep(Layer& layer, const Pattern& pattern, int64_t block, const ParallelContext& context)
      : layer_(layer),
        pattern_(pattern),
        block_(BlockColumns(pattern, block, layer.cols)),
        context_(context),
        factor_(block_, block_),
        errors_(layer.rows, block_),
        pruned_(layer.rows, block_) {
    if (pattern.kind == Pattern::Kind::kUnstructured) scores_ = Matrix<double>(layer.rows, block_);
  }

  // Prunes layer.weights; sets the bits of `mask` [rows, cols], all zero, that
  // are kept.
  //
  // Cost:    rows*cols^2 flops in products, rows*cols*block in the blocks
  // Errors:  Cancelled
  absl::Status Run(Mask& mask) {
    for (int64_t begin = 0; begin < layer_.cols; begin += block_) {
      SPARSEFW_RETURN_IF_ERROR(PruneBlock({begin, std::min(begin + block_, layer_.cols)}, mask));
    }
    return absl::OkStatus();
  }

 private:
  struct Block {
    int64_t begin;
    int64_t end;
    int64_t width() const { return end - begin; }
  };
  struct RowScratch {
    explicit RowScratch(int64_t block) : scores(static_cast<size_t>(block)) {}
    std::vector<double> scores;
    std::vector<Candidate<uint64_t>> candidates;
  };

  absl::Status PruneBlock(Block block, Mask& mask) {
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
  void CopyFactor(Block block) {
    for (int64_t row = 0; row < block.width(); ++row) {
      std::copy_n(layer_.gram.row(block.begin + row) + block.begin, block.width(),
                  factor_.row(row));
    }
  }

  absl::Status ChooseInMatrix(Block block) {
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

  void PruneRow(Block block, int64_t row, RowScratch& scratch, Mask& mask) {
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

  // Chooses `count` of the columns [first, first + size) of the block.
  void ChooseInRow(Block block, int64_t row, int64_t first, int64_t size, int64_t count,
                   RowScratch& scratch) {
    const double* weights = layer_.weights.row(row) + block.begin + first;
    for (int64_t j = 0; j < size; ++j) {
      scratch.scores[static_cast<size_t>(j)] =
          std::fabs(weights[j]) / factor_(first + j, first + j);
    }
    MarkLowest(scratch.scores.data(), size, count, scratch.candidates, pruned_.row(row) + first);
  }

  absl::Status UpdateLaterColumns(Block block) {
    return Gemm<double>({.rows = layer_.rows,
                         .cols = layer_.cols - block.end,
                         .depth = block.width(),
                         .accumulate = true},
                        errors_, {layer_.gram.row(block.begin) + block.end, layer_.gram.cols()},
                        {layer_.weights.data() + block.end, layer_.weights.cols()}, context_);
  }

  Layer& layer_;
  const Pattern pattern_;
  const int64_t block_;  // columns of a block, whole groups
  const ParallelContext& context_;
  Matrix<double> factor_;   // [block, block]: U of the block
  Matrix<double> errors_;   // [rows, block]: minus the errors
  Matrix<uint8_t> pruned_;  // [rows, block]
  Matrix<double> scores_;   // [rows, block], unstructured only
};

absl::Status ZeroColumns(const std::vector<int64_t>& columns, Layer& layer,
                         const ParallelContext& context) {
  if (columns.empty()) return absl::OkStatus();
  return context.ForEachRow({layer.rows, RowGrain(layer.cols)}, [&](int64_t row) {
    for (const int64_t column : columns) layer.weights(row, column) = 0;
  });
}

// The weights in the units and values of the given dtype.
absl::StatusOr<Matrix<float>> NewWeights(const Layer& layer, const Scale& scale, DType dtype,
                                         const ParallelContext& context) {
  Matrix<float> result(layer.rows, layer.cols);
  SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({layer.rows, RowGrain(layer.cols)}, [&](int64_t row) {
    for (int64_t col = 0; col < layer.cols; ++col) {
      const double value = std::ldexp(layer.weights(row, col), -scale.weights_exponent);
      result(row, col) = RoundedTo(dtype, value);
    }
  }));
  const std::optional<NonFinite> found = FindNonFinite(result.view());
  if (!found) return result;
  const double value = std::ldexp(layer.weights(found->row, found->col), -scale.weights_exponent);
  return Invalid("NON_FINITE",
                 "the new weights must fit in the dtype of weights, %s; got %g at [%d, %d]",
                 DTypeName(dtype), value, found->row, found->col);
}

}  // namespace

absl::StatusOr<PrunedWeights> Prune(const Problem& problem, const SparseGptOptions& options,
                                    const ParallelContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const Scale scale, ChooseScale(problem.weights, problem.gram, context));
  SPARSEFW_ASSIGN_OR_RETURN(Layer layer,
                            LoadScaled<double>(problem.weights, problem.gram, scale, context));
  SPARSEFW_ASSIGN_OR_RETURN(const DampedFactor factor,
                            FactorizeDamped(layer.gram, layer.cols, options.damping, context));
  SPARSEFW_RETURN_IF_ERROR(ZeroColumns(factor.dead_columns, layer, context));

  PrunedWeights result{Mask(layer.rows, layer.cols), Matrix<float>(), factor.damping};
  ColumnSweep sweep(layer, problem.pattern, options.block, context);
  SPARSEFW_RETURN_IF_ERROR(sweep.Run(result.mask));
  SPARSEFW_ASSIGN_OR_RETURN(result.weights,
                            NewWeights(layer, scale, problem.weights.dtype(), context));
  return result;
}

}  // namespace sparsegpt

int64_t SparseGptBytes(int64_t rows, int64_t cols, const Pattern& pattern,
                       const SparseGptOptions& options) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t block = sparsegpt::BlockColumns(pattern, options.block, cols);
  const int64_t layer = 8 * stride * (rows + cols);
  const int64_t factor = 8 * (4 * cols + 128) * 128;
  const int64_t sweep = (8 + 8 + 1) * rows * block + 8 * block * block;
  const int64_t weights = 4 * rows * cols;
  const int64_t masks = 4 * rows * ((cols + 7) / 8);
  return layer + factor + sweep + weights + masks;
}

}  // namespace sparsefw
