// Devices, memory, copies, streams, events, graphs.
#include <functional>
#include <vector>

#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/runtime/stream.h"
#include "gtest/gtest.h"
#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/environment.h"
#include "tests/cuda_on_host/test_buffer.h"

namespace cuda_on_host {
namespace {

using sparsefw::cuda::Launch;
using sparsefw::cuda::LaunchShape;

class Stream {
 public:
  Stream() { MustSucceed(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaStream_t stream_ = nullptr;
};

__global__ void ScaleKernel(int size, float factor, float* x) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at < size) x[at] *= factor;
}

cudaError_t LaunchScale(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, int size,
                        float factor, float* x) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, ScaleKernel, size, factor, x);
}

TEST(Device, SaysWhatItIs) {
  int count = 0;
  MustSucceed(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 1);
  cudaDeviceProp properties;
  MustSucceed(cudaGetDeviceProperties(&properties, 0));
  EXPECT_STREQ(properties.name, "CUDA emulated on the host (for tests)");
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

TEST(Device, MayBeMissing) {
  const Environment none("SPARSEFW_CUDA_ON_HOST_DEVICES", "0");
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  void* data = nullptr;
  EXPECT_EQ(cudaMallocAsync(&data, 1, nullptr), cudaErrorNoDevice);
}

TEST(Device, FailsWhenToldTo) {
  TestBuffer<float> x(std::vector<float>{1});
  SetFault(cudaErrorIllegalAddress, 2);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorIllegalAddress);
  EXPECT_EQ(LaunchScale(nullptr, 1, 1, 0, 1, 2, x.data()), cudaErrorIllegalAddress);
  SetFault(cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(x.Get()[0], 1);
}

TEST(Memory, IsLimited) {
  const Environment limit("SPARSEFW_CUDA_ON_HOST_MEMORY", "10000");
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const size_t allocated = AllocatedBytes();
  {
    TestBuffer<char> some(6000);
    MustSucceed(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT_EQ(free_bytes, 4000u);
    EXPECT_EQ(total_bytes, 10000u);
    char unchanged = 0;
    char* data = &unchanged;
    EXPECT_EQ(cudaMallocAsync(&data, 4001, nullptr), cudaErrorMemoryAllocation);
    EXPECT_EQ(data, nullptr);
    TestBuffer<char> rest(4000);
  }
  EXPECT_EQ(AllocatedBytes(), allocated);
  MustSucceed(cudaMemGetInfo(&free_bytes, &total_bytes));
  EXPECT_EQ(free_bytes, 10000u);
}

TEST(Memory, HoldsNothingAtFirst) {
  TestBuffer<float> x(100);
  for (const float value : x.Get()) EXPECT_TRUE(isnan(value));
}

TEST(Memory, IsFreedOnce) {
  float* data = nullptr;
  MustSucceed(cudaMallocAsync(&data, 4, nullptr));
  EXPECT_EQ(cudaFreeAsync(data + 1, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(data, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data, nullptr), cudaErrorInvalidValue);
}

TEST(Copies, CopyWithPitch) {
  // Two rows of three out of rows of four, into rows of five.
  const std::vector<int> source = {1, 2, 3, 0, 4, 5, 6, 0};
  TestBuffer<int> x(std::vector<int>(10, 9));
  MustSucceed(cudaMemcpy2DAsync(x.data(), 20, source.data(), 16, 12, 2, cudaMemcpyHostToDevice));
  EXPECT_EQ(x.Get(), (std::vector<int>{1, 2, 3, 9, 9, 4, 5, 6, 9, 9}));
  EXPECT_EQ(cudaMemcpy2DAsync(x.data(), 8, source.data(), 16, 12, 2, cudaMemcpyHostToDevice),
            cudaErrorInvalidPitchValue);
}

TEST(Copies, RefuseTheWrongPlaces) {
  std::vector<int> host(10);
  TestBuffer<int> x(10);
  EXPECT_EQ(cudaMemcpyAsync(x.data(), host.data(), 44, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), x.data(), 40, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), host.data(), 40, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 40), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(x.data() + 1, 0, 40), cudaErrorInvalidValue);
}

TEST(Launches, MustFitTheDevice) {
  TestBuffer<float> x(std::vector<float>{1});
  const auto launch = [&](dim3 grid, dim3 block, size_t shared_bytes) {
    return LaunchScale(nullptr, grid, block, shared_bytes, 1, 1, x.data());
  };
  EXPECT_EQ(launch(0, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 0, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(32, 33), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1, 48 * 1024 + 1), cudaErrorInvalidValue);
  EXPECT_EQ(launch(dim3(1, 65535), 1, 48 * 1024), cudaSuccess);

  const auto* const kernel = reinterpret_cast<const void*>(ScaleKernel);
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(kernel, attribute, 232449), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, attribute, 232448), cudaSuccess);
  EXPECT_EQ(launch(1, 1, 232448), cudaSuccess);
  EXPECT_EQ(launch(1, 1, 232449), cudaErrorInvalidValue);
  EXPECT_EQ(x.Get()[0], 1);
}

TEST(Graphs, ReplayWithArgumentsAsTheyWere) {
  const Stream stream;
  TestBuffer<float> x(std::vector<float>{1, 2, 3});
  TestBuffer<float> y(std::vector<float>(3, 0));
  float factor = 2;
  const int64_t launches = KernelLaunches();
  auto exec = sparsefw::cuda::CaptureGraph(stream, [&](cudaStream_t on) {
    MustSucceed(LaunchScale(on, 1, 32, 0, 3, factor, x.data()));
    factor = 100;
    MustSucceed(cudaMemcpyAsync(y.data(), x.data(), 12, cudaMemcpyDeviceToDevice, on));
    MustSucceed(cudaMemsetAsync(y.data(), 0, 4, on));
    return absl::OkStatus();
  });
  ASSERT_TRUE(exec.ok()) << exec.status();
  EXPECT_EQ(KernelLaunches(), launches);
  EXPECT_EQ(x.Get(), (std::vector<float>{1, 2, 3}));

  MustSucceed(cudaGraphLaunch(exec->get(), stream));
  EXPECT_EQ(y.Get(), (std::vector<float>{0, 4, 6}));
  // It works on values changed in between.
  x.Set({5, 6, 7});
  MustSucceed(cudaGraphLaunch(exec->get(), stream));
  EXPECT_EQ(y.Get(), (std::vector<float>{0, 12, 14}));
  EXPECT_EQ(KernelLaunches(), launches + 2);
}

TEST(Graphs, AreVoidAfterWhatCannotBeCaptured) {
  const Stream stream;
  void* data = nullptr;
  const auto waits = [&] { return cudaStreamSynchronize(stream); };
  const auto allocates = [&] { return cudaMallocHost(&data, 4); };
  const auto allocates_there = [&] { return cudaMallocAsync(&data, 4, stream); };
  for (const std::function<cudaError_t()>& call :
       {std::function<cudaError_t()>(waits), std::function<cudaError_t()>(allocates),
        std::function<cudaError_t()>(allocates_there)}) {
    MustSucceed(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(LaunchScale(stream, 1, 1, 0, 0, 1, nullptr), cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
}

}  // namespace
}  // namespace cuda_on_host
