#include "core/src/cuda/runtime/cuda_status.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "core/src/cuda/runtime/cusolver_library.h"
#include "sparsefw/reason.h"

namespace sparsefw::cuda {
namespace {

constexpr cudaError_t kNoDevice[] = {cudaErrorInsufficientDriver,  // too old, or none at all
                                     cudaErrorStubLibrary,        cudaErrorNoDevice,
                                     cudaErrorInvalidDevice,      cudaErrorInitializationError,
                                     cudaErrorSystemNotReady,     cudaErrorSystemDriverMismatch,
                                     cudaErrorDevicesUnavailable};

constexpr cudaError_t kSticky[] = {cudaErrorECCUncorrectable,
                                   cudaErrorNvlinkUncorrectable,
                                   cudaErrorContained,
                                   cudaErrorIllegalAddress,
                                   cudaErrorLaunchTimeout,
                                   cudaErrorContextIsDestroyed,
                                   cudaErrorHardwareStackError,
                                   cudaErrorIllegalInstruction,
                                   cudaErrorMisalignedAddress,
                                   cudaErrorInvalidAddressSpace,
                                   cudaErrorInvalidPc,
                                   cudaErrorLaunchFailure,
                                   cudaErrorAssert,
                                   cudaErrorTensorMemoryLeak,
                                   cudaErrorExternalDevice,
                                   cudaErrorMpsClientTerminated,
                                   cudaErrorUnknown};  // nothing is known of the device any more

constexpr std::pair<cublasStatus_t, std::string_view> kCublasMeanings[] = {
    {CUBLAS_STATUS_NOT_INITIALIZED, "not initialised"},
    {CUBLAS_STATUS_ALLOC_FAILED, "no memory for its own buffers"},
    {CUBLAS_STATUS_INVALID_VALUE, "a parameter out of range"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "not supported by this device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "no access to device memory"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "the product failed on the device"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "this combination of types is not supported"}};

std::string_view CublasMeaning(cublasStatus_t status) {
  for (const auto& [known, meaning] : kCublasMeanings) {
    if (known == status) return meaning;
  }
  return "internal error";
}

// cuBLAS and cuSOLVER answer a fault of the device, and a launch that failed for want of memory,
// with the same codes, and their runtime is not this one, which remembers errors of its own. A lost
// device answers every call with its fault, also this one, which a stream that records permits.
bool DeviceIsLost() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  return IsSticky(cudaMemGetInfo(&free_bytes, &total_bytes));
}

// A call as it stands in the code may run over lines; its name is enough.
std::string_view NameOf(std::string_view call) { return call.substr(0, call.find('(')); }

}  // namespace

bool IsSticky(cudaError_t error) { return absl::c_linear_search(kSticky, error); }

absl::Status Unavailable(const std::string& message) {
  return WithReason(absl::FailedPreconditionError(message), "DEVICE_UNAVAILABLE");
}

absl::Status ToStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrFormat("%s: %s (%s)", NameOf(call),
                                              cudaGetErrorString(error), cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation) {
    // Not sticky, but remembered until someone asks; nobody else should find it.
    static_cast<void>(cudaGetLastError());
    return WithReason(absl::ResourceExhaustedError(message), "OUT_OF_MEMORY");
  }
  if (absl::c_linear_search(kNoDevice, error)) return Unavailable(message);
  if (IsSticky(error)) return WithReason(absl::InternalError(message), "DEVICE_LOST");
  return absl::InternalError(message);
}

absl::Status ToStatus(const CudaError& error) { return ToStatus(error.code, error.call); }

absl::Status ToStatus(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrFormat("%s: %s (cublasStatus_t %d)", NameOf(call),
                                              CublasMeaning(status), static_cast<int>(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    return WithReason(absl::ResourceExhaustedError(message), "OUT_OF_MEMORY");
  }
  const bool by_device = status == CUBLAS_STATUS_EXECUTION_FAILED ||
                         status == CUBLAS_STATUS_MAPPING_ERROR ||
                         status == CUBLAS_STATUS_INTERNAL_ERROR;
  if (by_device && DeviceIsLost()) return WithReason(absl::InternalError(message), "DEVICE_LOST");
  return absl::InternalError(message);
}

absl::Status ToStatus(CusolverStatus status, std::string_view call) {
  if (status == CusolverStatus::kSuccess) return absl::OkStatus();
  const bool no_memory = status == CusolverStatus::kAllocFailed;
  const bool failed = status == CusolverStatus::kExecutionFailed;
  return ToStatus(no_memory ? CUBLAS_STATUS_ALLOC_FAILED
                  : failed  ? CUBLAS_STATUS_EXECUTION_FAILED
                            : CUBLAS_STATUS_INTERNAL_ERROR,
                  call);
}

}  // namespace sparsefw::cuda
