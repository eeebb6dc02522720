// Device memory for tests that call kernels one by one; a failure is the test's.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_TEST_BUFFER_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_TEST_BUFFER_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "gtest/gtest.h"

namespace cuda_on_host {

inline void MustSucceed(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorName(error);
}
inline void MustSucceed(const sparsefw::cuda::CudaError& error) {
  ASSERT_EQ(error.code, cudaSuccess) << error.call << ": " << cudaGetErrorName(error.code);
}
inline void MustSucceed(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

template <typename T>
class TestBuffer {
 public:
  explicit TestBuffer(size_t size) : size_(size) {
    MustSucceed(cudaMallocAsync(&data_, size * sizeof(T), nullptr));
  }
  explicit TestBuffer(const std::vector<T>& values) : TestBuffer(values.size()) { Set(values); }
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;
  ~TestBuffer() { EXPECT_EQ(cudaFreeAsync(data_, nullptr), cudaSuccess); }

  void Set(const std::vector<T>& values) {
    MustSucceed(
        cudaMemcpyAsync(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice, nullptr));
  }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    MustSucceed(
        cudaMemcpyAsync(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost, nullptr));
    return values;
  }
  T* data() { return data_; }

 private:
  T* data_ = nullptr;
  size_t size_;
};

}  // namespace cuda_on_host

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_TEST_BUFFER_H_
