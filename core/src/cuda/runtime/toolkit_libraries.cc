// Opens the libraries of the CUDA Toolkit: cublas_library.h, cusolver_library.h.
#include <dlfcn.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/cuda/runtime/cublas_library.h"
#include "core/src/cuda/runtime/cusolver_library.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

// A library that stays open as long as the program.
struct Opened {
  void* handle = nullptr;
  const char* product = "";
  std::string name;

  template <typename Function>
  absl::Status Find(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
    if (function != nullptr) return absl::OkStatus();
    return Unavailable(
        absl::StrFormat("%s has no function %s: it must be of CUDA 13", product, symbol));
  }
};

// From `folders` first, then from the loader's usual places, then where the toolkit installs it.
absl::StatusOr<Opened> OpenFile(const char* product, const std::string& file,
                                std::vector<std::string> folders) {
  for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda-13/lib64/"}) {
    folders.emplace_back(folder);
  }
  std::string error;
  for (const std::string& folder : folders) {
    const std::string name = folder + file;
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return Opened{handle, product, name};
    if (error.empty() || folder.empty()) error = dlerror();  // the loader's own search says most
  }
  return Unavailable(absl::StrFormat("%s of CUDA 13 cannot be opened: %s", product, error));
}

absl::StatusOr<CublasLibrary> OpenCublas() {
  SPARSEFW_ASSIGN_OR_RETURN(const Opened library, OpenFile("cuBLAS", "libcublas.so.13", {}));
  CublasLibrary table;
  table.name = library.name;
  SPARSEFW_RETURN_IF_ERROR(library.Find("cublasCreate_v2", table.create));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cublasDestroy_v2", table.destroy));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cublasSetStream_v2", table.set_stream));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cublasSetWorkspace_v2", table.set_workspace));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cublasGemmEx", table.gemm_ex));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cublasDtrsm_v2", table.dtrsm));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cublasGetProperty", table.get_property));
  return table;
}

// Beside cuBLAS first, so that both are of one version: in the toolkit and in NVIDIA's packages for
// Python they lie in one folder, or in two beside each other.
absl::StatusOr<CusolverLibrary> OpenCusolver() {
  SPARSEFW_ASSIGN_OR_RETURN(const CublasLibrary* cublas, CublasLibrary::Open());
  std::vector<std::string> beside;
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(cublas->create), &info) != 0) {
    const std::string path = info.dli_fname;
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    if (!folder.empty()) beside = {folder, folder + "../../cusolver/lib/"};
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Opened library,
                            OpenFile("cuSOLVER", "libcusolver.so.12", std::move(beside)));
  CusolverLibrary table;
  table.name = library.name;
  SPARSEFW_RETURN_IF_ERROR(library.Find("cusolverDnCreate", table.create));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cusolverDnSetStream", table.set_stream));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cusolverDnDpotrf_bufferSize", table.potrf_size));
  SPARSEFW_RETURN_IF_ERROR(library.Find("cusolverDnDpotrf", table.potrf));
  return table;
}

}  // namespace

absl::StatusOr<const CublasLibrary*> CublasLibrary::Open() {
  static const absl::StatusOr<CublasLibrary> library = OpenCublas();
  if (!library.ok()) return library.status();
  return &*library;
}

absl::StatusOr<const CusolverLibrary*> CusolverLibrary::Open() {
  static const absl::StatusOr<CusolverLibrary> library = OpenCusolver();
  if (!library.ok()) return library.status();
  return &*library;
}

}  // namespace sparsefw::cuda
