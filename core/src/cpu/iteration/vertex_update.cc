#include "core/src/cpu/iteration/vertex_update.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/src/cpu/iteration/tiled_product.h"
#include "core/src/cpu/linalg/kernels.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

template <typename Real>
VertexUpdate<Real>::VertexUpdate(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed,
                                 const ParallelContext& context)
    : iterate_(iterate),
      relaxed_(relaxed),
      context_(context),
      counts_(static_cast<size_t>(iterate.blocks.count())),
      changes_(static_cast<size_t>(iterate.layer->rows)),
      block_changes_(static_cast<size_t>(iterate.blocks.count())) {}

template <typename Real>
absl::StatusOr<VertexDistance> VertexUpdate<Real>::CountToggles() {
  const bool tracked = iterate_.older.tracked();
  const int64_t words = iterate_.layer->words;
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    VertexDistance& count = counts_[static_cast<size_t>(block)];
    count = {};
    for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
      const uint64_t* const to = iterate_.vertex.row(row);
      count.toggled += CountDifferences(iterate_.previous.row(row), to, words);
      if (tracked) count.terms += CountDifferences(iterate_.older.bits.row(row), to, words);
    }
  }));
  VertexDistance total;
  for (const VertexDistance& count : counts_) {
    total.toggled += count.toggled;
    total.terms += count.terms;
  }
  back_ = tracked && total.terms < total.toggled;
  if (!back_) total.terms = total.toggled;
  return total;
}

template <typename Real>
absl::Status VertexUpdate<Real>::Toggle() {
  const bool tracked = iterate_.older.tracked();
  const int64_t words = iterate_.layer->words;
  SPARSEFW_RETURN_IF_ERROR(context_.ForEachRow(iterate_.blocks, [&](int64_t row) {
    ToggleRow(row);
    if (tracked) {  // b_{t-1} from scratch
      changes_[static_cast<size_t>(row)] = Kernels<Real>().masked_dot(
          words, iterate_.layer->weights.row(row), iterate_.vertex_product.row(row),
          iterate_.fixed.row(row), iterate_.previous.row(row));
      std::copy_n(iterate_.previous.row(row), words, iterate_.older.bits.row(row));
    }
    std::copy_n(iterate_.vertex.row(row), words, iterate_.previous.row(row));
  }));
  if (tracked) std::swap(iterate_.vertex_product, iterate_.older.product);
  return absl::OkStatus();
}

template <typename Real>
void VertexUpdate<Real>::SetLosses(const std::vector<double>& losses) {
  if (!iterate_.older.tracked()) return;
  for (size_t row = 0; row < losses.size(); ++row) {
    iterate_.older.change[row] = losses[row] - changes_[row];
  }
}

template <typename Real>
void VertexUpdate<Real>::ToggleRow(int64_t row) {
  const uint64_t* const to = iterate_.vertex.row(row);
  ForEachDifference(iterate_.previous.row(row), to, iterate_.layer->words,
                    [&](int64_t col) { relaxed_.Toggle(row, col, GetBit(to, col)); });
}

// What enters the vertex leaves D. V_t becomes the last vertex.
template <typename Real>
void VertexUpdate<Real>::CollectTerms(int64_t row, SparseRows<Real>& terms) {
  const int64_t words = iterate_.layer->words;
  const Real* const weights = iterate_.layer->weights.row(row);
  uint64_t* const previous = iterate_.previous.row(row);
  const uint64_t* const to = iterate_.vertex.row(row);
  terms.BeginRow();
  ForEachDifference(back_ ? iterate_.older.bits.row(row) : previous, to, words, [&](int64_t col) {
    if (weights[col] != 0) terms.Add(GetBit(to, col) ? -weights[col] : weights[col], col);
  });
  terms.EndRow();
  if (iterate_.older.tracked()) std::copy_n(previous, words, iterate_.older.bits.row(row));
  std::copy_n(to, words, previous);
}

// b_t - b_{t-1} from b_t - b_s.
template <typename Real>
double VertexUpdate<Real>::MoveOn(int64_t row, double inner) {
  if (!iterate_.older.tracked()) return inner;
  double& last = iterate_.older.change[static_cast<size_t>(row)];
  last = back_ ? inner - last : inner;
  return last;
}

template <typename Real>
double VertexUpdate<Real>::Inner(int64_t row, std::span<const Term<Real>> terms) const {
  const Real* product = iterate_.vertex_product.row(row);
  double sum = 0;
  for (const Term<Real>& term : terms) {
    sum += static_cast<double>(term.factor) * static_cast<double>(product[term.col]);
  }
  return sum;
}

// Takes as many blocks as kGroupTerms allows, at least one.
template <typename Real>
int64_t VertexUpdate<Real>::EndOfGroup(int64_t first_block) const {
  const auto terms_of = [&](int64_t index) {
    const VertexDistance& count = counts_[static_cast<size_t>(index)];
    return back_ ? count.terms : count.toggled;
  };
  int64_t terms = 0;
  int64_t block = first_block;
  do {
    terms += terms_of(block++);
  } while (block < iterate_.blocks.count() && terms + terms_of(block) <= kGroupTerms);
  return block;
}

template <typename Real>
absl::StatusOr<double> VertexUpdate<Real>::Apply(absl::FunctionRef<void(int64_t)> then, bool last) {
  const RowBlocks& blocks = iterate_.blocks;
  if (!last) iterate_.TrackOlder();
  if (back_) std::swap(iterate_.vertex_product, iterate_.older.product);
  for (int64_t first = 0, end = 0; first < blocks.count(); first = end) {
    end = EndOfGroup(first);
    SPARSEFW_RETURN_IF_ERROR(CollectBlocks(first, end));
    const TiledTerms<Real> product = {
        .blocks = std::span(delta_).first(static_cast<size_t>(end - first)),
        .out = iterate_.vertex_product};
    SPARSEFW_RETURN_IF_ERROR(
        AddTiledProducts<Real>(*iterate_.layer, blocks, first, std::span(&product, 1), context_));
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(end - first, [&](int64_t index) {
      const int64_t block = first + index;
      const SparseRows<Real>& delta = delta_[static_cast<size_t>(index)];
      double sum = 0;
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        const double after = Inner(row, delta.row(row - blocks.begin(block)));
        sum += MoveOn(row, changes_[static_cast<size_t>(row)] + after);
      }
      block_changes_[static_cast<size_t>(block)] = sum;
      then(block);
    }));
  }
  return std::accumulate(block_changes_.begin(), block_changes_.end(), 0.0);
}

template <typename Real>
absl::Status VertexUpdate<Real>::CollectBlocks(int64_t first, int64_t end) {
  if (std::ssize(delta_) < end - first) delta_.resize(static_cast<size_t>(end - first));
  return context_.ForEach(end - first, [&](int64_t index) {
    const int64_t block = first + index;
    SparseRows<Real>& delta = delta_[static_cast<size_t>(index)];
    delta.Reset(iterate_.layer->cols, kTileDepth<Real>);
    for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
      ToggleRow(row);
      CollectTerms(row, delta);
      if (!back_ && iterate_.older.tracked()) {
        std::copy_n(iterate_.vertex_product.row(row), iterate_.layer->stride(),
                    iterate_.older.product.row(row));
      }
      changes_[static_cast<size_t>(row)] =
          Inner(row, delta.row(row - iterate_.blocks.begin(block)));
    }
  });
}

int64_t VertexUpdateBytes(int64_t rows, int64_t cols, int64_t size) {
  const int64_t depth = TileDepth(size);
  const int64_t tiles = (cols + depth - 1) / depth;
  const int64_t terms = std::min(std::max(kGroupTerms, 64 * cols), rows * cols);
  // A term has a factor, and a column that is padded to its size. Vectors that grow may be twice as
  // long as what is in them.
  return 2 * (terms * 2 * size + rows * (tiles + 1) * 4);
}

template class VertexUpdate<float>;
template class VertexUpdate<double>;

}  // namespace sparsefw::cpu
