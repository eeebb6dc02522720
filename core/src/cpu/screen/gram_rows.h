// Rows of G on the active columns of one row of the layer, gathered as they are
// first asked for: the same few are asked for again and again.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_GRAM_ROWS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_GRAM_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "core/src/cpu/screen/screen_kernels.h"
#include "core/src/linalg/panels.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Not thread-safe. Memory: up to the limit given to Reset, in chunks that the next Reset
// keeps.
template <typename Real>
class GramRows {
 public:
  // Begins with other columns, padded to `stride`. New chunks have `chunk` values, or one row.
  // `limit`: values that it may hold.
  void Reset(int64_t lanes, int64_t stride, int64_t chunk, int64_t limit) {
    rows_.assign(static_cast<size_t>(lanes), nullptr);
    stride_ = stride;
    chunk_ = std::max(chunk, stride);
    limit_ = limit;
    Forget();
  }

  // Forgets what was gathered if `count` more rows might not fit the limit.
  void MakeRoom(int64_t count) {
    if ((gathered_ + count) * stride_ <= limit_) return;
    std::fill(rows_.begin(), rows_.end(), nullptr);
    Forget();
  }

  // The row of G of active column `lane`; null: not gathered yet.
  const Real* Find(int64_t lane) const { return rows_[static_cast<size_t>(lane)]; }

  // Gathers the rows of `lanes`, whose columns are `cols`; `offsets` are those of all.
  void Gather(std::span<const uint32_t> lanes, const std::vector<uint32_t>& cols,
              const PanelView<Real>& gram, const std::vector<int32_t>& offsets) {
    for (size_t i = 0; i < lanes.size(); ++i) {
      Real* const out = Allocate();
      const Real* const next =
          i + 1 < lanes.size() ? gram.data + cols[lanes[i + 1]] * kPanelCols : nullptr;
      KernelsOfScreening<Real>().gather_row(gram.data + cols[lanes[i]] * kPanelCols, next,
                                            offsets.data(), std::ssize(offsets), out);
      std::fill(out + std::ssize(offsets), out + stride_, Real{0});
      rows_[lanes[i]] = out;
    }
  }

 private:
  void Forget() {
    gathered_ = 0;
    current_ = 0;
    offset_ = 0;
  }
  Real* Allocate() {
    while (current_ < chunks_.size() && offset_ + stride_ > chunks_[current_].size()) {
      ++current_;
      offset_ = 0;
    }
    if (current_ == chunks_.size()) chunks_.emplace_back(1, chunk_);
    Real* const out = chunks_[current_].data() + offset_;
    offset_ += stride_;
    ++gathered_;
    return out;
  }

  int64_t stride_ = 0;
  int64_t chunk_ = 0;
  int64_t limit_ = 0;
  int64_t gathered_ = 0;
  size_t current_ = 0;
  int64_t offset_ = 0;  // in the current chunk
  std::vector<Matrix<Real>> chunks_;
  std::vector<const Real*> rows_;  // of each active column; null: not gathered
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_GRAM_ROWS_H_
