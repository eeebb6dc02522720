#include "core/src/cpu/iteration/vertex_update.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

#include "core/src/cpu/iteration/tiled_product.h"
#include "core/src/cpu/linalg/panel_kernels.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

template <typename Real>
VertexUpdate<Real>::VertexUpdate(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed,
                                 const ParallelContext& context)
    : iterate_(iterate),
      relaxed_(relaxed),
      context_(context),
      toggles_(static_cast<size_t>(iterate.blocks.count())),
      changes_(static_cast<size_t>(iterate.layer->rows)),
      block_changes_(static_cast<size_t>(iterate.blocks.count())) {}

template <typename Real>
absl::StatusOr<int64_t> VertexUpdate<Real>::CountToggles() {
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    int64_t count = 0;
    for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
      const uint64_t* from = iterate_.previous.row(row);
      const uint64_t* to = iterate_.vertex.row(row);
      for (int64_t word = 0; word < iterate_.layer->words; ++word) {
        count += std::popcount(from[word] ^ to[word]);
      }
    }
    toggles_[static_cast<size_t>(block)] = count;
  }));
  return std::accumulate(toggles_.begin(), toggles_.end(), int64_t{0});
}

template <typename Real>
template <typename Changed>
void VertexUpdate<Real>::ToggleRow(int64_t row, const Changed& changed) {
  uint64_t* from = iterate_.previous.row(row);
  const uint64_t* to = iterate_.vertex.row(row);
  for (int64_t word = 0; word < iterate_.layer->words; ++word) {
    const uint64_t entered = to[word];
    ForEachBit(from[word] ^ entered, word, [&](int64_t col) {
      const bool in_vertex = ((entered >> (col & 63)) & 1) != 0;
      relaxed_.Toggle(row, col, in_vertex);
      changed(col, in_vertex);
    });
    from[word] = entered;
  }
}

template <typename Real>
absl::Status VertexUpdate<Real>::Toggle() {
  return context_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
      ToggleRow(row, [](int64_t, bool) {});
    }
  });
}

// A coordinate that enters the vertex is kept there, so it leaves D.
template <typename Real>
void VertexUpdate<Real>::CollectTerms(int64_t row, SparseRows<Real>& terms) {
  const Real* weights = iterate_.layer->weights.row(row);
  terms.BeginRow();
  ToggleRow(row, [&](int64_t col, bool in_vertex) {
    if (weights[col] != 0) terms.Add(in_vertex ? -weights[col] : weights[col], col);
  });
  terms.EndRow();
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

// As many blocks as kGroupTerms allow, one at least.
template <typename Real>
int64_t VertexUpdate<Real>::EndOfGroup(int64_t first_block) const {
  int64_t terms = 0;
  int64_t block = first_block;
  do {
    terms += toggles_[static_cast<size_t>(block++)];
  } while (block < iterate_.blocks.count() &&
           terms + toggles_[static_cast<size_t>(block)] <= kGroupTerms);
  return block;
}

template <typename Real>
absl::StatusOr<double> VertexUpdate<Real>::Apply(absl::FunctionRef<void(int64_t)> then) {
  const RowBlocks& blocks = iterate_.blocks;
  for (int64_t first = 0, end = 0; first < blocks.count(); first = end) {
    end = EndOfGroup(first);
    SPARSEFW_RETURN_IF_ERROR(CollectBlocks(first, end));
    SPARSEFW_RETURN_IF_ERROR(AddProducts(first, end));
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(end - first, [&](int64_t index) {
      const int64_t block = first + index;
      const SparseRows<Real>& delta = delta_[static_cast<size_t>(index)];
      double sum = 0;
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        const double after = Inner(row, delta.row(row - blocks.begin(block)));
        sum += changes_[static_cast<size_t>(row)] + after;
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
      CollectTerms(row, delta);
      changes_[static_cast<size_t>(row)] =
          Inner(row, delta.row(row - iterate_.blocks.begin(block)));
    }
  });
}

template <typename Real>
absl::Status VertexUpdate<Real>::AddProducts(int64_t first, int64_t end) {
  const TiledTerms<Real> product = {
      .blocks = std::span(delta_).first(static_cast<size_t>(end - first)),
      .out = iterate_.vertex_product};
  return AddTiledProducts<Real>(*iterate_.layer, iterate_.blocks, first, std::span(&product, 1),
                                context_);
}

template <typename Real>
double VertexUpdate<Real>::ApplyToRow(int64_t row, SparseRows<Real>& scratch) {
  const PanelView<Real> gram = iterate_.layer->gram.view();
  scratch.Reset(gram.depth, gram.depth);
  CollectTerms(row, scratch);
  double change = Inner(row, scratch.row(0));
  AddSparseProduct({.a = scratch,
                    .tile = 0,
                    .gram = gram,
                    .panels = {0, gram.count},
                    .out = iterate_.vertex_product.row(row),
                    .out_stride = iterate_.layer->stride()});
  change += Inner(row, scratch.row(0));
  return change;
}

template <typename Real>
int64_t VertexUpdate<Real>::ScratchBytes(int64_t rows, int64_t cols) {
  const int64_t tiles = (cols + kTileDepth<Real> - 1) / kTileDepth<Real>;
  const int64_t terms = std::min(std::max(kGroupTerms, 64 * cols), rows * cols);
  // Vectors that grow may be twice as long as what is in them.
  return 2 * (terms * static_cast<int64_t>(sizeof(Term<Real>)) + rows * (tiles + 1) * 4);
}

template class VertexUpdate<float>;
template class VertexUpdate<double>;

}  // namespace sparsefw::cpu
