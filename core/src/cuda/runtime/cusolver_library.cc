#include "core/src/cuda/runtime/cusolver_library.h"

#include <dlfcn.h>

#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/cuda/runtime/cublas_library.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr char kFile[] = "libcusolver.so.12";

absl::Status Unavailable(std::string message) {
  return WithReason(absl::FailedPreconditionError(std::move(message)), "DEVICE_UNAVAILABLE");
}

// Beside cuBLAS first, so that both are of one version: in the toolkit and in NVIDIA's packages for
// Python they lie in one folder, or in two beside each other.
std::vector<std::string> Names(const CublasLibrary& cublas) {
  std::vector<std::string> names;
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(cublas.create), &info) != 0) {
    const std::string path = info.dli_fname;
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    if (!folder.empty()) {
      names.push_back(folder + kFile);
      names.push_back(folder + "../../cusolver/lib/" + kFile);
    }
  }
  names.emplace_back(kFile);
  names.push_back(std::string("/usr/local/cuda/lib64/") + kFile);
  names.push_back(std::string("/usr/local/cuda-13/lib64/") + kFile);
  return names;
}

template <typename Function>
absl::Status Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr ? absl::OkStatus()
                             : Unavailable(absl::StrFormat("cuSOLVER has no function %s", symbol));
}

absl::StatusOr<CusolverLibrary> OpenLibrary() {
  SPARSEFW_ASSIGN_OR_RETURN(const CublasLibrary* cublas, CublasLibrary::Open());
  std::string error;
  for (const std::string& name : Names(*cublas)) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (error.empty() || name == kFile) error = dlerror();  // the loader's own search says most
      continue;
    }
    CusolverLibrary table;
    table.name = name;
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cusolverDnCreate", table.create));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cusolverDnSetStream", table.set_stream));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cusolverDnDpotrf_bufferSize", table.potrf_size));
    SPARSEFW_RETURN_IF_ERROR(Find(library, "cusolverDnDpotrf", table.potrf));
    return table;
  }
  return Unavailable(absl::StrFormat("cuSOLVER of CUDA 13 cannot be opened: %s", error));
}

}  // namespace

absl::StatusOr<const CusolverLibrary*> CusolverLibrary::Open() {
  static const absl::StatusOr<CusolverLibrary> library = OpenLibrary();
  if (!library.ok()) return library.status();
  return &*library;
}

}  // namespace sparsefw::cuda
