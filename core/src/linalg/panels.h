// G cut into panels of 64 columns, each contiguous: panel p holds columns
// 64p .. 64p+63 of every row, 64 * depth values.
//
// A product with G goes through it panel by panel: what is read again and again
// is then one piece of memory that fits a core's L2 cache, whatever its size in
// rows, and a row of it is one or two cache lines wide on every machine.
#ifndef SPARSEFW_CORE_SRC_LINALG_PANELS_H_
#define SPARSEFW_CORE_SRC_LINALG_PANELS_H_

#include <cstdint>

#include "sparsefw/matrix.h"

namespace sparsefw {

constexpr int64_t kPanelCols = 64;  // a word of bits: bit_rows.h

// Owns nothing. Columns beyond the matrix are zero.
template <typename Real>
struct PanelView {
  const Real* data = nullptr;
  int64_t depth = 0;  // rows of G
  int64_t count = 0;
  // In elements; those of a row-major matrix of `stride` are {stride, 64}.
  int64_t row_stride = kPanelCols;
  int64_t panel_stride = 0;

  const Real* panel(int64_t index) const { return data + index * panel_stride; }
};

template <typename Real>
class Panels {
 public:
  Panels() = default;
  Panels(int64_t depth, int64_t count) : depth_(depth), values_(count * depth, kPanelCols) {}

  Real& operator()(int64_t row, int64_t col) {
    return values_(col / kPanelCols * depth_ + row, col % kPanelCols);
  }
  PanelView<Real> view() const {
    return {.data = values_.data(),
            .depth = depth_,
            .count = depth_ == 0 ? 0 : values_.rows() / depth_,
            .panel_stride = depth_ * kPanelCols};
  }

 private:
  int64_t depth_ = 0;
  Matrix<Real> values_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_PANELS_H_
