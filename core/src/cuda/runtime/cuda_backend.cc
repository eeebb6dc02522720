#include "core/src/cuda/runtime/cuda_backend.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/cuda/joint/joint_search.h"
#include "core/src/cuda/linalg/gram_accumulator.h"
#include "core/src/cuda/memory/device_bytes.h"
#include "core/src/cuda/memory/device_gram.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/runtime/cublas_library.h"
#include "core/src/cuda/runtime/cuda_engine.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/cusolver_library.h"
#include "core/src/cuda/runtime/use_device.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int kLeastMajor = 8;  // the oldest architecture that code is made for: Ampere

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, const cudaDeviceProp& properties)
      : device_(device),
        name_(absl::StrFormat("cuda:%d", device)),
        description_(absl::StrFormat("%s, compute capability %d.%d, %d multiprocessors",
                                     properties.name, properties.major, properties.minor,
                                     properties.multiProcessorCount)),
        memory_bytes_(static_cast<int64_t>(properties.totalGlobalMem)),
        pci_bus_id_(absl::StrFormat("%08X:%02X:%02X.0", properties.pciDomainID, properties.pciBusID,
                                    properties.pciDeviceID)) {}

  std::string_view name() const override { return "cuda"; }
  bool has_device_memory() const override { return true; }
  bool chooses_start() const override { return true; }
  bool shrinks_gram() const override { return true; }

  DeviceDescription Describe() const override {
    return {.name = name_,
            .description = description_,
            .memory_bytes = memory_bytes_,
            .pci_bus_id = pci_bus_id_};
  }

  absl::StatusOr<int64_t> FreeMemoryBytes() const override {
    size_t free = 0;
    size_t total = 0;
    SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }

  absl::Status CheckPrune() const override { return CusolverLibrary::Open().status(); }

  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
      const EngineOptions& options) const override {
    SPARSEFW_RETURN_IF_ERROR(ValidateThreads(options.threads));
    return std::make_unique<CudaEngine>(device_, options);
  }

  // cuBLAS chooses its kernels by the device, and its next version may choose others.
  std::string checkpoint_tag() const override {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) return {};
    const absl::StatusOr<const CublasLibrary*> cublas = CublasLibrary::Open();
    if (!cublas.ok()) return {};
    const absl::StatusOr<std::string> version = (*cublas)->Version();
    if (!version.ok()) return {};
    return absl::StrFormat("cuda 5, %s, driver %d, cuBLAS %s", description_, driver, *version);
  }

  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(int64_t d_in,
                                                                         int) const override {
    return CreateCudaGramAccumulator(device_, d_in);
  }

  int64_t DeviceGramSumBytes(int64_t d_in) const override { return GramAccumulatorBytes(d_in); }

  // Memory of Solve beside the engine, which has its matrices on the device:
  // six masks, new weights and pinned memory.
  int64_t EstimateHostBytes(int64_t rows, int64_t cols,
                            const MemoryRequest& request) const override {
    const int64_t masks = 6 * rows * ((cols + 7) / 8);
    // Those of a method of its own; those solved on its mask, and W there, which may replace them.
    const int64_t weights =
        (request.prunes ? 1 : 0) + (request.reconstruct || request.joint ? 2 : 0);
    return masks + weights * 4 * rows * cols + (request.joint ? JointHostBytes(rows, cols) : 0) +
           kStagingBytes + kSavedPieceBytes;
  }

  int64_t EstimateDeviceBytes(int64_t rows, int64_t cols,
                              const MemoryRequest& request) const override {
    return PeakBytes(rows, cols, request);
  }

  absl::StatusOr<std::shared_ptr<const DeviceGram>> UploadGram(
      ConstMatrixView gram, const StopSignal* stop) const override {
    return CudaGram::Upload(device_, gram, stop);
  }

  int64_t DeviceGramBytes(int64_t cols, DType gram) const override {
    return CudaGramBytes(cols, gram);
  }

 private:
  const int device_;
  const std::string name_;
  const std::string description_;
  const int64_t memory_bytes_;
  const std::string pci_bus_id_;
};

absl::StatusOr<int> CountDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  // CUDA also says so where there is no driver at all.
  if (error == cudaErrorInsufficientDriver) {
    return Unavailable("no CUDA driver, or one too old for CUDA 13");
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return Unavailable("the CUDA driver sees no device");
  }
  SPARSEFW_CUDA_RETURN_IF_ERROR(error);
  return count;
}

// Asks the driver about a device without making a context on it.
// Errors: why it cannot be used
absl::StatusOr<std::unique_ptr<CudaBackend>> Inspect(int device) {
  cudaDeviceProp properties = {};
  int has_pools = 0;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device));
  if (properties.major < kLeastMajor) {
    return Unavailable(absl::StrFormat("%s has compute capability %d.%d; at least %d.0 is needed",
                                       properties.name, properties.major, properties.minor,
                                       kLeastMajor));
  }
  if (has_pools == 0) {  // some virtual GPUs
    return Unavailable(
        absl::StrFormat("%s has no memory pools (cudaMallocAsync)", properties.name));
  }
  return std::make_unique<CudaBackend>(device, properties);
}

// The error of all devices together, where none can be used.
absl::Status NoneUsable(const std::vector<UnusableDevice>& devices) {
  std::string message;
  for (const UnusableDevice& device : devices) {
    absl::StrAppendFormat(&message, "%s%s: %s", message.empty() ? "" : "; ", device.name,
                          device.reason);
  }
  return Unavailable(message);
}

}  // namespace

absl::StatusOr<CudaModuleDevices> OpenBackends() {
  SPARSEFW_ASSIGN_OR_RETURN(const int count, CountDevices());
  SPARSEFW_RETURN_IF_ERROR(CublasLibrary::Open().status());
  // Never freed: backends live as long as the program, and CUDA may be gone
  // before destructors of static objects run.
  static auto* backends = new std::vector<std::unique_ptr<CudaBackend>>;
  CudaModuleDevices found;
  for (int device = 0; device < count; ++device) {
    absl::StatusOr<std::unique_ptr<CudaBackend>> backend = Inspect(device);
    if (!backend.ok()) {
      static_cast<void>(cudaGetLastError());  // nobody else should find it
      found.unusable.push_back(
          {absl::StrFormat("cuda:%d", device), std::string(backend.status().message())});
      continue;
    }
    backends->push_back(*std::move(backend));
    found.usable.push_back(backends->back().get());
  }
  if (found.usable.empty()) return NoneUsable(found.unusable);
  return found;
}

}  // namespace sparsefw::cuda
