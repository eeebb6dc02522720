// What the engine uses of cuSOLVER, by plain loops. SPARSEFW_CUDA_ON_HOST_NO_CUSOLVER stands for a
// machine without it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "absl/status/status.h"
#include "core/src/cuda/runtime/cusolver_library.h"
#include "tests/cuda_on_host/runtime.h"

struct cusolverDnContext {
  cudaStream_t stream = nullptr;
};

namespace sparsefw::cuda {
namespace {

constexpr int kInvalidValue = 3;

CusolverStatus Create(CusolverHandle* handle) {
  *handle = new cusolverDnContext;
  return CusolverStatus::kSuccess;
}

CusolverStatus SetStream(CusolverHandle handle, cudaStream_t stream) {
  handle->stream = stream;
  return CusolverStatus::kSuccess;
}

// Some workspace, so that whoever gives none is found.
CusolverStatus PotrfSize(CusolverHandle, cublasFillMode_t, int n, double*, int lda, int* elements) {
  if (n < 0 || lda < std::max(1, n)) return static_cast<CusolverStatus>(kInvalidValue);
  *elements = 2 * n;
  return CusolverStatus::kSuccess;
}

// The upper triangle by columns: A = U^T U. Returns the place of the first pivot that is not
// positive, counted from 1; else 0.
int Factorize(int n, double* a, int64_t lda) {
  for (int j = 0; j < n; ++j) {
    double* column = a + j * lda;
    for (int i = 0; i <= j; ++i) {
      const double* other = a + i * lda;
      double sum = column[i];
      for (int k = 0; k < i; ++k) sum -= other[k] * column[k];
      if (i < j) {
        column[i] = sum / other[i];
      } else if (sum > 0) {
        column[i] = std::sqrt(sum);
      } else {
        column[i] = sum;
        return j + 1;
      }
    }
  }
  return 0;
}

CusolverStatus Potrf(CusolverHandle handle, cublasFillMode_t uplo, int n, double* a, int lda,
                     double* workspace, int elements, int* info) {
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * sizeof(double); };
  const bool valid = uplo == CUBLAS_FILL_MODE_UPPER && n >= 0 && lda >= std::max(1, n);
  if (!valid || elements < 2 * n) return static_cast<CusolverStatus>(kInvalidValue);
  if (!cuda_on_host::IsDeviceRange(a, bytes(int64_t{lda} * (n - 1) + n)) ||
      !cuda_on_host::IsDeviceRange(workspace, bytes(elements)) ||
      !cuda_on_host::IsDeviceRange(info, sizeof(int))) {
    return CusolverStatus::kExecutionFailed;
  }
  void* own = nullptr;  // it takes memory for itself, at some sizes
  if (cudaMallocAsync(&own, 8, handle->stream) != cudaSuccess) return CusolverStatus::kAllocFailed;
  static_cast<void>(cudaFreeAsync(own, handle->stream));
  const cudaError_t enqueued = cuda_on_host::Enqueue(handle->stream, [=] {
    std::fill_n(workspace, elements, std::nan(""));
    *info = Factorize(n, a, lda);
  });
  return enqueued == cudaSuccess ? CusolverStatus::kSuccess : CusolverStatus::kExecutionFailed;
}

}  // namespace

absl::StatusOr<const CusolverLibrary*> CusolverLibrary::Open() {
  if (std::getenv("SPARSEFW_CUDA_ON_HOST_NO_CUSOLVER") != nullptr) {
    return absl::FailedPreconditionError("cuSOLVER of CUDA 13 cannot be opened: there is none");
  }
  static const auto* library =
      new CusolverLibrary{.create = &Create,
                          .set_stream = &SetStream,
                          .potrf_size = &PotrfSize,
                          .potrf = &Potrf,
                          .name = "loops in place of cuSOLVER (for tests)"};
  return library;
}

}  // namespace sparsefw::cuda
