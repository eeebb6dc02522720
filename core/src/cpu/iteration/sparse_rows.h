// Rows of a sparse matrix, as lists of terms: what the vertex update multiplies
// with G.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_SPARSE_ROWS_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_SPARSE_ROWS_H_

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace sparsefw::cpu {

template <typename Real>
struct Term {
  Real factor;
  uint32_t col;
};

// The terms of one row lie side by side in ascending order of columns, and are
// cut where the columns pass a multiple of `tile_depth`, so that a product can
// take the rows of G a tile at a time.
template <typename Real>
class SparseRows {
 public:
  // Forgets everything; the memory is kept.
  void Reset(int64_t cols, int64_t tile_depth) {
    tile_depth_ = tile_depth;
    tiles_ = (cols + tile_depth - 1) / tile_depth;
    terms_.clear();
    cuts_.clear();
  }

  // Add is called in ascending order of columns (of one tile: in any order),
  // between BeginRow and EndRow.
  void BeginRow() { tile_end_ = 0; }
  void Add(Real factor, int64_t col) {
    for (; col >= tile_end_; tile_end_ += tile_depth_) cuts_.push_back(size());
    terms_.push_back({factor, static_cast<uint32_t>(col)});
  }
  // A row being written has fewer than tiles + 1 cuts, so rows() leaves it out.
  void EndRow() { cuts_.resize(static_cast<size_t>((rows() + 1) * (tiles_ + 1)), size()); }

  int64_t rows() const { return std::ssize(cuts_) / (tiles_ + 1); }
  int64_t tiles() const { return tiles_; }
  std::span<const Term<Real>> row(int64_t row) const { return Between(row, 0, tiles_); }
  std::span<const Term<Real>> tile(int64_t row, int64_t tile) const {
    return Between(row, tile, tile + 1);
  }

 private:
  uint32_t size() const { return static_cast<uint32_t>(terms_.size()); }
  std::span<const Term<Real>> Between(int64_t row, int64_t from, int64_t to) const {
    const uint32_t* cuts = cuts_.data() + row * (tiles_ + 1);
    return {terms_.data() + cuts[from], terms_.data() + cuts[to]};
  }

  int64_t tile_depth_ = 1;
  int64_t tiles_ = 1;
  int64_t tile_end_ = 0;
  std::vector<Term<Real>> terms_;
  std::vector<uint32_t> cuts_;  // [rows, tiles + 1]: where each tile's terms begin
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_SPARSE_ROWS_H_
