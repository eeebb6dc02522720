#include "core/src/cuda/runtime/cublas_version.h"

#include "absl/strings/str_format.h"
#include "core/src/cuda/runtime/cuda_status.h"

namespace sparsefw::cuda {

absl::StatusOr<std::string> CublasVersion(const CublasLibrary& library) {
  int major = 0;
  int minor = 0;
  int patch = 0;
  SPARSEFW_CUDA_RETURN_IF_ERROR(library.get_property(MAJOR_VERSION, &major));
  SPARSEFW_CUDA_RETURN_IF_ERROR(library.get_property(MINOR_VERSION, &minor));
  SPARSEFW_CUDA_RETURN_IF_ERROR(library.get_property(PATCH_LEVEL, &patch));
  return absl::StrFormat("%d.%d.%d", major, minor, patch);
}

}  // namespace sparsefw::cuda
