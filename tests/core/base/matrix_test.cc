#include "sparsefw/matrix.h"

#include <cstdint>
#include <new>
#include <utility>

#include "gtest/gtest.h"

namespace sparsefw {
namespace {

TEST(MatrixTest, IsZeroAlignedAndRowMajor) {
  Matrix<float> matrix(3, 5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix.data()) % 64, 0U);
  for (const float value : matrix.span()) EXPECT_EQ(value, 0);
  matrix(1, 2) = 7;
  EXPECT_EQ(matrix.data()[7], 7);
  EXPECT_EQ(matrix.row(1)[2], 7);
  EXPECT_EQ(matrix.size(), 15);
}

// Large ones come from the system page by page; freed and taken again they are
// zero once more.
TEST(MatrixTest, LargeOnesAreZeroAlignedAndMovable) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    Matrix<float> matrix(1500, 1024);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix.data()) % 64, 0U);
    for (int64_t i = 0; i < matrix.size(); ++i) ASSERT_EQ(matrix.data()[i], 0) << i;
    for (float& value : matrix.span()) value = 1;
    const float* data = matrix.data();
    Matrix<float> moved = std::move(matrix);
    EXPECT_EQ(moved.data(), data);
    Matrix<float> small(2, 2);
    small = std::move(moved);
    EXPECT_EQ(small(1499, 1023), 1);
  }
}

// Freed blocks of this size must not stay in malloc's heap.
TEST(MatrixTest, LargeOnesAreCountedAndGoBackToTheSystem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "all blocks are malloc's";
#endif
  const int64_t before = LargeBlockBytes();
  const Matrix<float> small(64, 64);
  EXPECT_EQ(LargeBlockBytes(), before);
  for (int round = 0; round < 3; ++round) {
    Matrix<float> large(2048, 1024);
    EXPECT_EQ(LargeBlockBytes(), before + 2048 * 1024 * 4);
    for (const float value : large.span()) ASSERT_EQ(value, 0) << "memory of the one before";
    for (float& value : large.span()) value = 1;
    Matrix<float> moved = std::move(large);
    EXPECT_EQ(LargeBlockBytes(), before + 2048 * 1024 * 4);
  }
  EXPECT_EQ(LargeBlockBytes(), before);
}

TEST(MatrixTest, EmptyIsLegal) {
  EXPECT_EQ(Matrix<double>(0, 5).size(), 0);
  EXPECT_EQ(Matrix<double>().size(), 0);
}

TEST(MatrixTest, SizesThatWrapAreRefused) {
  EXPECT_THROW(Matrix<double>(int64_t{1} << 31, int64_t{1} << 31), std::bad_alloc);
  EXPECT_THROW(Matrix<float>(int64_t{1} << 40, int64_t{1} << 40), std::bad_alloc);
}

TEST(ConstMatrixViewTest, StridesAndSlices) {
  Matrix<float> matrix(4, 6);
  for (int64_t i = 0; i < 24; ++i) matrix.data()[i] = static_cast<float>(i);
  const ConstMatrixView view(matrix.data() + 1, DType::kF32, 4, 3, 6);
  EXPECT_EQ(view.row<float>(2)[1], 14);
  EXPECT_EQ(view.size(), 12);
  const ConstMatrixView rows = view.Rows(1, 2);
  EXPECT_EQ(rows.rows(), 2);
  EXPECT_EQ(rows.row<float>(1)[0], 13);
  EXPECT_TRUE(ConstMatrixView().empty());
  EXPECT_FALSE(view.empty());
}

// Beyond 4 Gi elements, offsets only.
TEST(ConstMatrixViewTest, OffsetsBeyondFourGi) {
  const auto* base = reinterpret_cast<const std::byte*>(uintptr_t{4096});
  const ConstMatrixView view(base, DType::kF32, int64_t{1} << 20, int64_t{1} << 20);
  EXPECT_EQ(view.size(), int64_t{1} << 40);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.row_bytes((int64_t{1} << 20) - 1)),
            4096U + (uint64_t{4} << 40) - (uint64_t{4} << 20));
}

}  // namespace
}  // namespace sparsefw
