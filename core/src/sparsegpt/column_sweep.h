// The sweep of SparseGPT over the columns: sparsefw/sparsegpt.h says what it
// computes.
#ifndef SPARSEFW_CORE_SRC_SPARSEGPT_COLUMN_SWEEP_H_
#define SPARSEFW_CORE_SRC_SPARSEGPT_COLUMN_SWEEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::sparsegpt {

// Inputs of a sweep. The matrices may be wider than cols.
struct SweepLayer {
  Matrix<double>& weights;       // [rows, >= cols]; becomes the new weights
  const Matrix<double>& factor;  // U [cols, >= cols], read on and above the diagonal
  int64_t rows = 0;
  int64_t cols = 0;
};

// Rows are independent of each other but for the choice of an unstructured
// block. Lives for one call of Run.
class ColumnSweep {
 public:
  // Memory: 9 bytes for every weight of a block, 8 more when unstructured.
  ColumnSweep(const SweepLayer& layer, const Pattern& pattern, int64_t block,
              const ParallelContext& context);

  // Prunes layer.weights; sets the bits of `mask` [rows, cols], all zero, that
  // are kept.
  //
  // Cost:    rows*cols^2 flops in products, rows*cols*block in the blocks
  // Errors:  Cancelled
  absl::Status Run(Mask& mask);

 private:
  struct Block {
    int64_t begin;
    int64_t end;
    int64_t width() const { return end - begin; }
  };
  struct RowScratch;

  absl::Status PruneBlock(Block block, Mask& mask);
  void CopyFactor(Block block);
  absl::Status ChooseInMatrix(Block block);
  void PruneRow(Block block, int64_t row, RowScratch& scratch, Mask& mask);
  void ChooseInRow(Block block, int64_t row, int64_t first, int64_t size, int64_t count,
                   RowScratch& scratch);
  absl::Status UpdateLaterColumns(Block block);

  const SweepLayer layer_;
  const Pattern pattern_;
  const int64_t block_;  // columns of a block, whole groups
  const ParallelContext& context_;
  Matrix<double> factor_;   // [block, block]: U of the block
  Matrix<double> errors_;   // [rows, block]: minus the errors
  Matrix<uint8_t> pruned_;  // [rows, block]
  Matrix<double> scores_;   // [rows, block], unstructured only
};

// How many of `size` weights are pruned: the product of GroupsOf, so that the last block ends at
// exactly its count.
int64_t PrunedOf(int64_t size, double sparsity);

// Columns of a block: `block`, in whole groups of an n:m pattern, at least one,
// and no more than there are.
int64_t BlockColumns(const Pattern& pattern, int64_t block, int64_t cols);

}  // namespace sparsefw::sparsegpt

#endif  // SPARSEFW_CORE_SRC_SPARSEGPT_COLUMN_SWEEP_H_
