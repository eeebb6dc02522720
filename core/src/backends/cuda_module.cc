#include "core/src/backends/cuda_module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/src/cuda/module.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

namespace fs = std::filesystem;

constexpr char kVariable[] = "SPARSEFW_CUDA_MODULE";

absl::StatusOr<fs::path> ModulePath(const char* variable, const fs::path& folder) {
  std::error_code error;
  if (variable != nullptr) {
    if (*variable == '\0' || std::string_view(variable) == "none") {
      return absl::NotFoundError(absl::StrFormat("%s=%s turns CUDA off", kVariable, variable));
    }
    // dlopen would look for a bare name in the system's folders.
    return fs::absolute(variable, error);
  }
  for (const char* place : {".", "../lib", "../lib/sparsefw", "../bin"}) {
    fs::path path = (folder / place / kCudaModuleFile).lexically_normal();
    if (fs::exists(path, error)) return path;
  }
  return absl::NotFoundError(
      absl::StrFormat("no CUDA module %s beside the program", kCudaModuleFile));
}

absl::StatusOr<const CudaModule*> LoadModule(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(
        absl::StrFormat("cannot load the CUDA module: %s", why != nullptr ? why : path));
  }
  void* const symbol = dlsym(library, kCudaModuleSymbol);
  if (symbol == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is not a CUDA module: it has no %s", path, kCudaModuleSymbol));
  }
  const CudaModule* const module = reinterpret_cast<decltype(&sparsefw_cuda_module)>(symbol)();
  if (std::string_view(module->build) != kCudaModuleBuild) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the CUDA module %s was made for another build (it says \"%s\", this "
                        "program is \"%s\")",
                        path, module->build, kCudaModuleBuild));
  }
  return module;
}

absl::StatusOr<CudaDevices> OpenModule(const char* variable, const fs::path& folder) {
  SPARSEFW_ASSIGN_OR_RETURN(const fs::path path, ModulePath(variable, folder));
  SPARSEFW_ASSIGN_OR_RETURN(const CudaModule* module, LoadModule(path.string()));
  SPARSEFW_ASSIGN_OR_RETURN(const CudaModuleDevices opened, module->open());
  if (opened.usable.empty()) {
    return absl::NotFoundError(absl::StrFormat("the CUDA module %s found none", path.string()));
  }
  CudaDevices found;
  found.unusable = opened.unusable;
  for (const Backend* backend : opened.usable) {
    const DeviceDescription device = backend->Describe();
    absl::StrAppendFormat(&found.reason, "%s%s is %s", found.reason.empty() ? "" : ", ",
                          device.name, device.description);
    found.devices.push_back({backend, device.name});
  }
  return found;
}

}  // namespace

CudaDevices FindCudaDevices(const char* variable, const std::string& folder) {
  try {
    absl::StatusOr<CudaDevices> found = OpenModule(variable, folder);
    if (found.ok()) return *std::move(found);
    return {{}, {}, std::string(found.status().message())};
  } catch (const std::exception& error) {
    return {{}, {}, absl::StrFormat("the CUDA module failed: %s", error.what())};
  }
}

CudaDevices FindCudaDevices() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return FindCudaDevices(std::getenv(kVariable), program.parent_path().string());
}

}  // namespace sparsefw
