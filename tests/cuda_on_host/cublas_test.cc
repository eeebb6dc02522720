// cublasGemmEx against the sum written out.
#include <cublas_v2.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/src/cuda/runtime/cublas_library.h"
#include "core/src/cuda/runtime/stream.h"
#include "gtest/gtest.h"
#include "sparsefw/dtype.h"
#include "tests/cuda_on_host/test_buffer.h"

namespace cuda_on_host {
namespace {

using sparsefw::cuda::CublasLibrary;

constexpr int kM = 5;
constexpr int kN = 7;
constexpr int kK = 11;

// Element (row, col) of op(X), X stored column-major.
template <typename T>
double At(const std::vector<T>& x, cublasOperation_t operation, int stride, int row, int col) {
  if (operation != CUBLAS_OP_N) std::swap(row, col);
  return static_cast<double>(x[static_cast<size_t>(col * stride + row)]);
}

template <typename T>
std::vector<T> Values(size_t size, double step) {
  std::vector<T> values(size);
  for (size_t i = 0; i < size; ++i) {
    values[i] = static_cast<T>(std::sin(static_cast<double>(i + 1) * step));
  }
  return values;
}

class GemmEx : public ::testing::Test {
 protected:
  GemmEx() {
    const auto library = CublasLibrary::Open();
    EXPECT_TRUE(library.ok());
    library_ = *library;
    EXPECT_EQ(library_->create(&handle_), CUBLAS_STATUS_SUCCESS);
  }
  ~GemmEx() override { EXPECT_EQ(library_->destroy(handle_), CUBLAS_STATUS_SUCCESS); }

  const CublasLibrary* library_ = nullptr;
  cublasHandle_t handle_ = nullptr;
};

template <typename T>
void ExpectProduct(const CublasLibrary& library, cublasHandle_t handle, cublasOperation_t op_a,
                   cublasOperation_t op_b, double tolerance) {
  constexpr bool kDouble = sizeof(T) == 8;
  constexpr int kStride = 13;
  const std::vector<T> a = Values<T>(kStride * kStride, 0.7);
  const std::vector<T> b = Values<T>(kStride * kStride, 1.3);
  const std::vector<T> c = Values<T>(kStride * kN, 2.1);
  TestBuffer<T> device_a(a);
  TestBuffer<T> device_b(b);
  TestBuffer<T> device_c(c);
  const T alpha = T{2};
  const T beta = T{-3};
  const cudaDataType type = kDouble ? CUDA_R_64F : CUDA_R_32F;
  ASSERT_EQ(library.gemm_ex(handle, op_a, op_b, kM, kN, kK, &alpha, device_a.data(), type, kStride,
                            device_b.data(), type, kStride, &beta, device_c.data(), type, kStride,
                            kDouble ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  const std::vector<T> result = device_c.Get();
  for (int row = 0; row < kM; ++row) {
    for (int col = 0; col < kN; ++col) {
      double sum = 0;
      for (int k = 0; k < kK; ++k) {
        sum += At(a, op_a, kStride, row, k) * At(b, op_b, kStride, k, col);
      }
      EXPECT_NEAR(At(result, CUBLAS_OP_N, kStride, row, col),
                  2 * sum - 3 * At(c, CUBLAS_OP_N, kStride, row, col), tolerance);
    }
  }
}

TEST_F(GemmEx, MultipliesFloatsAndDoubles) {
  for (const cublasOperation_t op_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const cublasOperation_t op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      ExpectProduct<float>(*library_, handle_, op_a, op_b, 1e-5);
      ExpectProduct<double>(*library_, handle_, op_a, op_b, 1e-13);
    }
  }
}

TEST_F(GemmEx, WidensHalfAndBFloat16) {
  const std::vector<float> values = {1.5f, -2.0f, 0.25f, 3.0f};
  std::vector<uint16_t> half;
  std::vector<uint16_t> bfloat16;
  for (const float value : values) {
    half.push_back(sparsefw::ToHalf(value).bits);
    bfloat16.push_back(sparsefw::ToBFloat16(value).bits);
  }
  const float alpha = 1;
  const float beta = 0;
  for (const cudaDataType type : {CUDA_R_16F, CUDA_R_16BF}) {
    TestBuffer<uint16_t> x(type == CUDA_R_16F ? half : bfloat16);
    TestBuffer<float> c(4);
    ASSERT_EQ(library_->gemm_ex(handle_, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 2, &alpha, x.data(), type,
                                2, x.data(), type, 2, &beta, c.data(), CUDA_R_32F, 2,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(c.Get(), (std::vector<float>{2.3125f, -2.25f, -2.25f, 13.0f}));
  }
}

TEST_F(GemmEx, IsCaptured) {
  TestBuffer<float> x(std::vector<float>{3});
  TestBuffer<float> c(std::vector<float>{1});
  auto stream = sparsefw::cuda::CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  ASSERT_EQ(library_->set_stream(handle_, stream->get()), CUBLAS_STATUS_SUCCESS);
  auto exec = sparsefw::cuda::CaptureGraph(stream->get(), [&](cudaStream_t) {
    const float alpha = 1;  // gone by the time of the replay
    EXPECT_EQ(library_->gemm_ex(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, x.data(),
                                CUDA_R_32F, 1, x.data(), CUDA_R_32F, 1, &alpha, c.data(),
                                CUDA_R_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    return absl::OkStatus();
  });
  ASSERT_TRUE(exec.ok()) << exec.status();
  EXPECT_EQ(c.Get()[0], 1);
  for (int launch = 0; launch < 2; ++launch) {
    MustSucceed(cudaGraphLaunch(exec->get(), stream->get()));
  }
  EXPECT_EQ(c.Get()[0], 19);
}

TEST_F(GemmEx, RefusesWhatItCannotDo) {
  TestBuffer<float> x(std::vector<float>(4, 1));
  const float one = 1;
  const auto multiply = [&](int m, int lda, const void* a, cudaDataType type) {
    return library_->gemm_ex(handle_, CUBLAS_OP_N, CUBLAS_OP_N, m, 2, 2, &one, a, type, lda,
                             x.data(), CUDA_R_32F, 2, &one, x.data(), CUDA_R_32F, 2,
                             CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(multiply(2, 1, x.data(), CUDA_R_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(-1, 2, x.data(), CUDA_R_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(2, 2, x.data(), CUDA_R_64F), CUBLAS_STATUS_NOT_SUPPORTED);
  const std::vector<float> on_host(4);
  EXPECT_EQ(multiply(2, 2, on_host.data(), CUDA_R_32F), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(multiply(2, 3, x.data(), CUDA_R_32F), CUBLAS_STATUS_EXECUTION_FAILED);
}

}  // namespace
}  // namespace cuda_on_host
