// Dense row-major matrices: a typed-at-run-time view and an owning buffer.
#ifndef SPARSEFW_MATRIX_H_
#define SPARSEFW_MATRIX_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "sparsefw/dtype.h"

namespace sparsefw {

// A read-only view of a row-major matrix whose dtype is known at run time.
// Does not own; whoever makes it keeps the memory alive. Cheap to copy.
// `stride` is in elements and at least cols.
class ConstMatrixView {
 public:
  ConstMatrixView() = default;
  ConstMatrixView(const void* data, DType dtype, int64_t rows, int64_t cols)
      : ConstMatrixView(data, dtype, rows, cols, cols) {}
  ConstMatrixView(const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride)
      : data_(static_cast<const std::byte*>(data)),
        dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(stride) {}

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t stride() const { return stride_; }
  int64_t size() const { return rows_ * cols_; }
  DType dtype() const { return dtype_; }
  bool empty() const { return data_ == nullptr; }

  const std::byte* row_bytes(int64_t row) const {
    return data_ + static_cast<size_t>(row) * static_cast<size_t>(stride_) * SizeOf(dtype_);
  }
  // T must be the C++ type of dtype(): float, double, Half, BFloat16.
  template <typename T>
  const T* row(int64_t row) const {
    assert(sizeof(T) == SizeOf(dtype_));
    return reinterpret_cast<const T*>(row_bytes(row));
  }
  // Rows [first, first + count).
  ConstMatrixView Rows(int64_t first, int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows_);
    return ConstMatrixView(row_bytes(first), dtype_, count, cols_, stride_);
  }

 private:
  const std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
};

template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kF32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kF64;
}
template <>
constexpr DType DTypeOf<Half>() {
  return DType::kF16;
}
template <>
constexpr DType DTypeOf<BFloat16>() {
  return DType::kBF16;
}

// Zeroed memory, 64-byte aligned. Large blocks (4 MiB and more) ask for huge pages, for products
// walk over thousands of them, and come untouched from the system: the first
// to write makes them resident, so that no thread spends a second on zeroing. They go back to
// the system as soon as they are freed, whatever malloc keeps for itself.
struct AlignedBlock {
  void* data = nullptr;  // null when there is no memory
  size_t offset = 0;     // the block begins at data - offset
  size_t mapped = 0;     // bytes of a large block; 0: of malloc
};
AlignedBlock AllocateZeroed(size_t bytes);
void FreeBlock(const AlignedBlock& block);

// Bytes of all large blocks held now, which the statistics of malloc leave out; those of the
// CUDA module are counted there. 0 under a
// sanitizer: there all blocks are malloc's, so that it sees their ends.
int64_t LargeBlockBytes();

// An owning, zero-initialised, 64-byte aligned row-major matrix. Move only.
template <typename T>
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {
    constexpr int64_t kMaxSize = (int64_t{1} << 62) / static_cast<int64_t>(sizeof(T));
    if (rows > 0 && cols > kMaxSize / rows) throw std::bad_alloc();  // the product would wrap
    static_assert(std::is_trivially_copyable_v<T>);                  // and zero is T{} bit for bit
    const AlignedBlock block = AllocateZeroed(static_cast<size_t>(size()) * sizeof(T));
    if (block.data == nullptr) throw std::bad_alloc();  // turned into ResourceExhausted by Solve
    data_ = {static_cast<T*>(block.data), Free{block.offset, block.mapped}};
  }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t size() const { return rows_ * cols_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T* row(int64_t row) { return data_.get() + row * cols_; }
  const T* row(int64_t row) const { return data_.get() + row * cols_; }
  T& operator()(int64_t row, int64_t col) { return this->row(row)[col]; }
  const T& operator()(int64_t row, int64_t col) const { return this->row(row)[col]; }
  std::span<T> span() { return {data(), static_cast<size_t>(size())}; }
  std::span<const T> span() const { return {data(), static_cast<size_t>(size())}; }
  ConstMatrixView view() const { return ConstMatrixView(data(), DTypeOf<T>(), rows_, cols_); }

 private:
  struct Free {
    size_t offset = 0;
    size_t mapped = 0;
    void operator()(T* data) const { FreeBlock({data, offset, mapped}); }
  };
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  std::unique_ptr<T[], Free> data_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_MATRIX_H_
