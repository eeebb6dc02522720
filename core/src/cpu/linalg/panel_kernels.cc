#include "core/src/cpu/linalg/panel_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/linalg/panel_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// Must come after foreach_target.h.
#include "core/src/cpu/linalg/kernel_tables.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of a panel's row that fit the registers at once, beside what else the
// loop needs: 32 registers with AVX-512, 16 before it.
template <class D>
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
template <class D>
constexpr int kPanelVectors = static_cast<int>(kPanelCols) / kLanes<D>;
template <class D>
constexpr int kSparseVectors = std::min(8, kPanelVectors<D>);
#if HWY_TARGET <= HWY_AVX3
template <class D>
constexpr int kDenseVectors = std::min(4, kPanelVectors<D>);
constexpr int kDenseRows = 6;
#else
template <class D>
constexpr int kDenseVectors = 2;
constexpr int kDenseRows = 4;
#endif

// A few vectors of one row of `out`, kept in registers over all terms.
template <int kVectors, class D, typename Real>
HWY_INLINE void AddTerms(D d, std::span<const Term<Real>> terms, const Real* HWY_RESTRICT panel,
                         int64_t row_stride, Real* HWY_RESTRICT out) {
  hn::Vec<D> sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Load(d, out + v * kLanes<D>);
  for (const Term<Real>& term : terms) {
    const auto factor = hn::Set(d, term.factor);
    const Real* HWY_RESTRICT row = panel + term.col * row_stride;
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(factor, hn::Load(d, row + v * kLanes<D>), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, out + v * kLanes<D>);
}

template <typename Real>
void AddSparseProduct(const SparseProduct<Real>& product) {
  const hn::ScalableTag<Real> d;
  using D = decltype(d);
  constexpr int64_t kCols = kSparseVectors<D> * kLanes<D>;
  const int64_t rows = product.a.rows();
  for (int64_t p = product.panels.begin; p < product.panels.end; ++p) {
    const Real* panel = product.gram.panel(p);
    Real* out = product.out + p * kPanelCols;
    for (int64_t row = 0; row < rows; ++row, out += product.out_stride) {
      const auto terms = product.a.tile(row, product.tile);
      if (terms.empty()) continue;
      for (int64_t col = 0; col < kPanelCols; col += kCols) {
        AddTerms<kSparseVectors<D>>(d, terms, panel + col, product.gram.row_stride, out + col);
      }
    }
  }
}

struct Depth {
  int64_t begin;
  int64_t end;
};

// kRows x kVectors sums in registers: every row of G loaded serves kRows rows.
template <int kRows, int kVectors, class D, typename Real>
HWY_INLINE void MultiplyBlock(D d, const Real* HWY_RESTRICT a, int64_t a_stride, Depth depth,
                              const Real* HWY_RESTRICT panel, Real* HWY_RESTRICT out,
                              int64_t out_stride) {
  hn::Vec<D> sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t k = depth.begin; k < depth.end; ++k) {
    hn::Vec<D> gram[kVectors];
    for (int v = 0; v < kVectors; ++v)
      gram[v] = hn::Load(d, panel + k * kPanelCols + v * kLanes<D>);
    for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, a[r * a_stride + k]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(factor, gram[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      Real* to = out + r * out_stride + v * kLanes<D>;
      hn::Store(depth.begin == 0 ? sums[r][v] : hn::Add(hn::Load(d, to), sums[r][v]), d, to);
    }
  }
}

// All rows, for one panel and one block of its depth.
template <class D, typename Real>
HWY_INLINE void MultiplyRows(D d, const DenseProduct<Real>& product, Depth depth, int64_t panel) {
  constexpr int kVectors = kDenseVectors<D>;
  for (int64_t col = 0; col < kPanelCols; col += kVectors * kLanes<D>) {
    const Real* gram = product.gram.panel(panel) + col;
    const Real* a = product.a;
    Real* out = product.out + panel * kPanelCols + col;
    int64_t left = product.rows;
    for (; left >= kDenseRows; left -= kDenseRows) {
      MultiplyBlock<kDenseRows, kVectors>(d, a, product.a_stride, depth, gram, out,
                                          product.out_stride);
      a += kDenseRows * product.a_stride;
      out += kDenseRows * product.out_stride;
    }
    for (; left > 0; --left, a += product.a_stride, out += product.out_stride) {
      MultiplyBlock<1, kVectors>(d, a, product.a_stride, depth, gram, out, product.out_stride);
    }
  }
}

template <typename Real>
void MultiplyDense(const DenseProduct<Real>& product) {
  const hn::ScalableTag<Real> d;
  constexpr int64_t kDepth = 256;
  for (int64_t panel = product.panels.begin; panel < product.panels.end; ++panel) {
    for (int64_t begin = 0; begin < product.gram.depth; begin += kDepth) {
      MultiplyRows(d, product, {begin, std::min(begin + kDepth, product.gram.depth)}, panel);
    }
  }
}

template <typename Real>
constexpr PanelKernels<Real> kPanelKernels = {AddSparseProduct<Real>, MultiplyDense<Real>};
const PanelKernels<float>* FloatPanelKernels() { return &kPanelKernels<float>; }
const PanelKernels<double>* DoublePanelKernels() { return &kPanelKernels<double>; }

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

SPARSEFW_DISPATCH_TABLES(PanelKernels, KernelsOfPanels)

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
