#include "core/src/cuda/runtime/cublas_library.h"

#include <dlfcn.h>

#include "absl/strings/str_format.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

// The loader's usual places first, then where the toolkit installs it.
constexpr const char* kNames[] = {"libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.13",
                                  "/usr/local/cuda-13/lib64/libcublas.so.13"};

absl::Status Unavailable(std::string message) {
  return WithReason(absl::FailedPreconditionError(std::move(message)), "DEVICE_UNAVAILABLE");
}

template <typename Function>
absl::Status Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr ? absl::OkStatus()
                             : Unavailable(absl::StrFormat(
                                   "cuBLAS has no function %s: it must be of CUDA 13", symbol));
}

absl::StatusOr<CublasLibrary> OpenLibrary() {
  std::string first_error;
  for (const char* name : kNames) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (first_error.empty()) first_error = dlerror();
      continue;
    }
    CublasLibrary table;
    table.name = name;
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cublasCreate_v2", table.create));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cublasDestroy_v2", table.destroy));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cublasSetStream_v2", table.set_stream));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cublasSetWorkspace_v2", table.set_workspace));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cublasGemmEx", table.gemm_ex));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cublasDtrsm_v2", table.dtrsm));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cublasGetProperty", table.get_property));
    return table;
  }
  return Unavailable(absl::StrFormat("cuBLAS of CUDA 13 cannot be opened: %s", first_error));
}

}  // namespace

absl::StatusOr<const CublasLibrary*> CublasLibrary::Open() {
  static const absl::StatusOr<CublasLibrary> library = OpenLibrary();
  if (!library.ok()) return library.status();
  return &*library;
}

}  // namespace sparsefw::cuda
