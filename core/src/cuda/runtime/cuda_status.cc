#include "core/src/cuda/runtime/cuda_status.h"

#include "absl/strings/str_format.h"
#include "core/src/cuda/runtime/cusolver_library.h"
#include "sparsefw/reason.h"

namespace sparsefw::cuda {
namespace {

bool MeansNoDevice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:  // too old, or none at all
    case cudaErrorStubLibrary:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorDevicesUnavailable:
      return true;
    default:
      return false;
  }
}

std::string_view CublasMeaning(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "not initialised";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "no memory for its own buffers";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "a parameter out of range";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "not supported by this device";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "no access to device memory";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the product failed on the device";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "this combination of types is not supported";
    default:
      return "internal error";
  }
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

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:  // nothing is known of the device any more
      return true;
    default:
      return false;
  }
}

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
  if (MeansNoDevice(error)) return Unavailable(message);
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
  switch (status) {
    case CusolverStatus::kSuccess:
      return absl::OkStatus();
    case CusolverStatus::kAllocFailed:
      return ToStatus(CUBLAS_STATUS_ALLOC_FAILED, call);
    case CusolverStatus::kExecutionFailed:
      return ToStatus(CUBLAS_STATUS_EXECUTION_FAILED, call);
    default:
      return ToStatus(CUBLAS_STATUS_INTERNAL_ERROR, call);
  }
}

}  // namespace sparsefw::cuda
