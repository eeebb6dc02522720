// Looks for the CUDA module and for the devices that it finds.
#ifndef SPARSEFW_CORE_SRC_BACKENDS_CUDA_MODULE_H_
#define SPARSEFW_CORE_SRC_BACKENDS_CUDA_MODULE_H_

#include <string>
#include <vector>

#include "sparsefw/backend.h"

namespace sparsefw {

struct CudaDevice {
  const Backend* backend = nullptr;
  std::string name;  // Describe().name
};

struct CudaDevices {
  std::vector<CudaDevice> devices;
  std::vector<UnusableDevice> unusable;
  // A description of them, or why there is none. A sentence without its full stop.
  std::string reason;
};

// `variable`: the value of SPARSEFW_CUDA_MODULE, null where it is not set. A path is the only place
// looked at; with "none" and "" no place is. Otherwise the first of <folder>, <folder>/../lib,
// .../lib/sparsefw and <folder>/../bin that has the module counts, `folder` being that of the
// running program. A loaded module stays loaded. Thread-safe. No exception leaves it.
CudaDevices FindCudaDevices(const char* variable, const std::string& folder);

// With the environment and the folder of this process. Looks anew at every call:
// the registry keeps what the first one found.
CudaDevices FindCudaDevices();

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_BACKENDS_CUDA_MODULE_H_
