#include "core/src/linalg/blas.h"

#include <cstring>
#include <tuple>

#include "core/src/parallel/parallel_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::Random;

template <typename T>
Matrix<T> RandomMatrix(int64_t rows, int64_t cols, uint64_t seed) {
  Random random(seed);
  Matrix<T> matrix(rows, cols);
  for (T& value : matrix.span()) value = static_cast<T>(random.Normal());
  return matrix;
}

template <typename T>
absl::Status Multiply(const Matrix<T>& a, const Matrix<T>& b, Matrix<T>& c,
                      const ParallelContext& context, bool accumulate = false) {
  return Gemm<T>({a.rows(), b.cols(), a.cols(), accumulate}, a, b, c, context);
}

template <typename T>
void ExpectProduct(int64_t rows, int64_t cols, int64_t depth, double tolerance) {
  const Matrix<T> a = RandomMatrix<T>(rows, depth, 1);
  const Matrix<T> b = RandomMatrix<T>(depth, cols, 2);
  for (const bool accumulate : {false, true}) {
    Matrix<T> c = RandomMatrix<T>(rows, cols, 3);
    const Matrix<T> before = RandomMatrix<T>(rows, cols, 3);
    SPARSEFW_ASSERT_OK(Multiply(a, b, c, ParallelContext(0), accumulate));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        double expected = accumulate ? static_cast<double>(before(i, j)) : 0;
        for (int64_t k = 0; k < depth; ++k) {
          expected += static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
        }
        ASSERT_NEAR(static_cast<double>(c(i, j)), expected, tolerance) << i << ", " << j;
      }
    }
  }
}

class GemmTest : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(GemmTest, IsTheProduct) {
  const auto [rows, cols, depth] = GetParam();
  ExpectProduct<float>(rows, cols, depth, 1e-4);
  ExpectProduct<double>(rows, cols, depth, 1e-12);
}

// Below, at and beyond the blocks of rows (64) and columns (1024).
INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest,
                         ::testing::Values(std::tuple(1, 1, 1), std::tuple(3, 5, 2),
                                           std::tuple(64, 1024, 16), std::tuple(65, 1025, 3),
                                           std::tuple(600, 40, 33)));

TEST(GemmTest, StridesAreHonoured) {
  const Matrix<float> a = RandomMatrix<float>(8, 10, 1);
  const Matrix<float> b = RandomMatrix<float>(6, 9, 2);
  Matrix<float> c(8, 12);
  Gemm<float>({8, 7, 6}, a, b, c);
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 12; ++j) {
      float expected = 0;
      for (int64_t k = 0; k < 6 && j < 7; ++k) expected += a(i, k) * b(k, j);
      EXPECT_NEAR(c(i, j), expected, 1e-5F);
    }
  }
}

TEST(GemmTest, SameBitsOnAnyNumberOfThreads) {
  const Matrix<float> a = RandomMatrix<float>(300, 200, 1);
  const Matrix<float> b = RandomMatrix<float>(200, 1100, 2);
  Matrix<float> one(300, 1100);
  Matrix<float> many(300, 1100);
  SPARSEFW_ASSERT_OK(Multiply(a, b, one, ParallelContext(1)));
  SPARSEFW_ASSERT_OK(Multiply(a, b, many, ParallelContext(0)));
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.span().size_bytes()), 0);
}

// The product has eight blocks, on one thread: it ends whichever limit it is, and wherever it
// comes.
TEST(GemmTest, EndsBetweenTwoBlocksOnceStopped) {
  const Matrix<double> a = RandomMatrix<double>(512, 4, 1);
  const Matrix<double> b = RandomMatrix<double>(4, 4, 2);
  const auto rows_of_product = [&](int limit, bool by_signal) {
    StopSignal stop;
    int looks = 0;
    const ParallelContext context(1, &stop, [&] {
      if (++looks <= limit) return false;
      if (by_signal) stop.Request();
      return !by_signal;
    });
    Matrix<double> c(512, 4);
    EXPECT_THAT(Multiply(a, b, c, context), testing::StatusIs(absl::StatusCode::kCancelled));
    int64_t written = 0;
    for (int64_t row = 0; row < 512; ++row) written += c(row, 0) != 0 ? 1 : 0;
    return written;
  };
  EXPECT_EQ(rows_of_product(0, /*by_signal=*/false), 0);
  EXPECT_EQ(rows_of_product(3, /*by_signal=*/false), 3 * 64);
  // The signal is seen at the look after the one that set it.
  EXPECT_EQ(rows_of_product(3, /*by_signal=*/true), 4 * 64);
}

class SyrkTest : public ::testing::TestWithParam<int64_t> {};

// Below, at and beyond the tile (512).
INSTANTIATE_TEST_SUITE_P(Cols, SyrkTest, ::testing::Values(1, 5, 512, 530));

TEST_P(SyrkTest, AddsToTheUpperTriangleOnly) {
  const int64_t cols = GetParam();
  const Matrix<float> a = RandomMatrix<float>(20, cols, 1);
  const Matrix<double> expected = testing::GramOf(a.view());
  Matrix<double> sum(cols, cols);
  for (double& value : sum.span()) value = 1;
  const ParallelContext context(0);
  SyrkF32 product(cols, context.threads());
  for (int repeat = 0; repeat < 2; ++repeat) {
    SPARSEFW_ASSERT_OK(context.Run([&] {
      product.Add(20, a.data(), cols, sum.data());
      return absl::OkStatus();
    }));
  }
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      ASSERT_NEAR(sum(i, j), j < i ? 1 : 1 + 2 * expected(i, j), 1e-4) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace sparsefw
