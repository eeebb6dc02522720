#include "core/src/linalg/blas.h"

#include <cblas.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

// Weak: absent from other libraries with the CBLAS interface.
extern "C" void openblas_set_num_threads(int count) __attribute__((weak));
extern "C" char* openblas_get_corename(void) __attribute__((weak));

namespace sparsefw {
namespace {

// Large tiles are faster, but all cores shall have some: by the width alone, so
// that the number of threads changes no bit.
int64_t TileOf(int64_t cols) { return cols >= 2048 ? 512 : cols >= 1024 ? 256 : 128; }

// CBLAS counts in int; every dimension of a layer fits.
int Int(int64_t value) { return static_cast<int>(value); }

// CBLAS has a function for each precision.
template <typename Real, typename OfFloat, typename OfDouble>
auto Of(OfFloat of_float, OfDouble of_double) {
  if constexpr (std::is_same_v<Real, float>) {
    return of_float;
  } else {
    return of_double;
  }
}

int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Tall enough that packing B is cheap, small enough that a block stays near
// 20 ms and that a small product still gives every core something.
struct Blocking {
  int64_t rows;
  int64_t cols;
};
Blocking BlockingOf(int64_t rows, int64_t cols, int64_t depth, size_t element_size) {
  constexpr int64_t kCols = 1024;
  constexpr int64_t kFlopsOfBlock = int64_t{1} << 31;
  const int64_t by_time = kFlopsOfBlock / static_cast<int64_t>(element_size / 2) /
                          std::max<int64_t>(1, std::min(cols, kCols) * depth);
  const int64_t by_share = CeilDiv(rows, 8);
  const int64_t block = std::clamp<int64_t>(std::min(by_time, by_share), 64, 256);
  return {CeilDiv(block, 32) * 32, kCols};
}

// Adds one tile's products to the sum: the diagonal tile has an upper triangle only.
void AddTile(const Matrix<float>& tile, int64_t rows, int64_t cols, bool diagonal, double* sum,
             int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = tile.row(i);
    double* to = sum + i * stride;
    for (int64_t j = diagonal ? i : 0; j < cols; ++j) to[j] += static_cast<double>(from[j]);
  }
}

}  // namespace

void UseOneBlasThread() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
  });
}

std::string BlasKernels() {
  return openblas_get_corename == nullptr ? "unknown" : openblas_get_corename();
}

template <typename T>
void Gemm(const GemmShape& shape, Operand<const T> a, Operand<const T> b, Operand<T> c) {
  UseOneBlasThread();
  const Blocking block = BlockingOf(shape.rows, shape.cols, shape.depth, sizeof(T));
  const int64_t col_blocks = CeilDiv(shape.cols, block.cols);
  const int64_t row_blocks = CeilDiv(shape.rows, block.rows);
  ParallelFor(row_blocks * col_blocks, 1, [&](int64_t index, int64_t) {
    const int64_t row = index / col_blocks * block.rows;
    const int64_t col = index % col_blocks * block.cols;
    Of<T>(cblas_sgemm, cblas_dgemm)(
        CblasRowMajor, CblasNoTrans, CblasNoTrans, Int(std::min(block.rows, shape.rows - row)),
        Int(std::min(block.cols, shape.cols - col)), Int(shape.depth), T{1},
        a.data + row * a.stride, Int(a.stride), b.data + col, Int(b.stride),
        shape.accumulate ? T{1} : T{0}, c.data + row * c.stride + col, Int(c.stride));
  });
}

template <typename T>
absl::Status Gemm(const GemmShape& shape, Operand<const T> a, Operand<const T> b, Operand<T> c,
                  const ParallelContext& context) {
  return context.Run([&] {
    Gemm<T>(shape, a, b, c);
    return absl::OkStatus();
  });
}
template void Gemm<float>(const GemmShape&, Operand<const float>, Operand<const float>,
                          Operand<float>);
template void Gemm<double>(const GemmShape&, Operand<const double>, Operand<const double>,
                           Operand<double>);
template absl::Status Gemm<float>(const GemmShape&, Operand<const float>, Operand<const float>,
                                  Operand<float>, const ParallelContext&);
template absl::Status Gemm<double>(const GemmShape&, Operand<const double>, Operand<const double>,
                                   Operand<double>, const ParallelContext&);

SyrkF32::SyrkF32(int64_t cols, int threads)
    : cols_(cols), tiles_([cols] {
        const int64_t tile = std::min(TileOf(cols), cols);
        return std::make_unique<Matrix<float>>(tile, tile);
      }) {
  const int64_t per_side = CeilDiv(cols, TileOf(cols));
  const int64_t count = std::min<int64_t>(threads, per_side * (per_side + 1) / 2);
  std::list<ScratchPool<Matrix<float>>::Lease> all;  // at the same time, so that there are as many
  while (std::ssize(all) < count) all.emplace_back(tiles_);
}

void SyrkF32::Add(int64_t rows, const float* a, int64_t a_stride, double* sum) {
  UseOneBlasThread();
  const int64_t size = TileOf(cols_);
  const int64_t tiles = CeilDiv(cols_, size);
  // Every tile of the square is a block; those below the diagonal return at once.
  ParallelFor(tiles * tiles, 1, [&](int64_t index, int64_t) {
    const int64_t i = index / tiles * size;
    const int64_t j = index % tiles * size;
    if (j < i) return;
    const int64_t height = std::min(size, cols_ - i);
    const int64_t width = std::min(size, cols_ - j);
    // A thread of the arena runs one tile at a time, so there is always one left.
    const ScratchPool<Matrix<float>>::Lease lease(tiles_);
    Matrix<float>& tile = lease.get();
    if (i == j) {
      cblas_ssyrk(CblasRowMajor, CblasUpper, CblasTrans, Int(height), Int(rows), 1.0F, a + i,
                  Int(a_stride), 0.0F, tile.data(), Int(tile.cols()));
    } else {
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, Int(height), Int(width), Int(rows), 1.0F,
                  a + i, Int(a_stride), a + j, Int(a_stride), 0.0F, tile.data(), Int(tile.cols()));
    }
    AddTile(tile, height, width, i == j, sum + i * cols_ + j, cols_);
  });
}

namespace serial {

template <typename Real>
void SolveTransposed(const Upper<Real>& r, int64_t cols, Real* b, int64_t b_stride) {
  UseOneBlasThread();
  if (r.size == 0 || cols == 0) return;
  Of<Real>(cblas_strsm, cblas_dtrsm)(CblasRowMajor, CblasLeft, CblasUpper, CblasTrans, CblasNonUnit,
                                     Int(r.size), Int(cols), Real{1}, r.values, Int(r.stride), b,
                                     Int(b_stride));
}

template <typename Real>
void SolveVector(const Upper<Real>& r, Real* x) {
  UseOneBlasThread();
  if (r.size == 0) return;
  Of<Real>(cblas_strsv, cblas_dtrsv)(CblasRowMajor, CblasUpper, CblasNoTrans, CblasNonUnit,
                                     Int(r.size), r.values, Int(r.stride), x, 1);
}

template <typename Real>
void AddProduct(bool transpose, int64_t rows, int64_t cols, Real alpha, const Real* a,
                int64_t a_stride, const Real* x, Real* y) {
  UseOneBlasThread();
  if (rows == 0 || cols == 0) return;
  Of<Real>(cblas_sgemv, cblas_dgemv)(CblasRowMajor, transpose ? CblasTrans : CblasNoTrans,
                                     Int(rows), Int(cols), alpha, a, Int(a_stride), x, 1, Real{1},
                                     y, 1);
}

template <typename Real>
void AddLowerSquare(int64_t rows, int64_t cols, const Real* a, Real* c) {
  UseOneBlasThread();
  if (rows == 0 || cols == 0) return;
  Of<Real>(cblas_ssyrk, cblas_dsyrk)(CblasRowMajor, CblasLower, CblasTrans, Int(cols), Int(rows),
                                     Real{1}, a, Int(cols), Real{1}, c, Int(cols));
}

template void SolveTransposed(const Upper<float>&, int64_t, float*, int64_t);
template void SolveTransposed(const Upper<double>&, int64_t, double*, int64_t);
template void SolveVector(const Upper<float>&, float*);
template void SolveVector(const Upper<double>&, double*);
template void AddProduct(bool, int64_t, int64_t, float, const float*, int64_t, const float*,
                         float*);
template void AddProduct(bool, int64_t, int64_t, double, const double*, int64_t, const double*,
                         double*);
template void AddLowerSquare(int64_t, int64_t, const float*, float*);
template void AddLowerSquare(int64_t, int64_t, const double*, double*);

}  // namespace serial
}  // namespace sparsefw
