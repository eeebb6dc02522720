// The interface between a program and the CUDA module libsparsefw_cuda.so: one
// function that returns one table. Plain C++, no CUDA header: both sides compile it.
//
// C++ types cross this border, so both sides must be made from the same headers
// by the same compiler. The module says what it was made from, and a program
// refuses one that says anything else before it calls into it.
#ifndef SPARSEFW_CORE_SRC_CUDA_MODULE_H_
#define SPARSEFW_CORE_SRC_CUDA_MODULE_H_

#include <vector>

#include "absl/base/config.h"
#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

#if !defined(SPARSEFW_VERSION)
#error "SPARSEFW_VERSION must be the project's version; linking sparsefw::base defines it"
#endif

// The number of the layout: raise it with every change to sparsefw/backend.h, to
// what that includes, or to CudaModule.
#define SPARSEFW_CUDA_MODULE_ABI 19

namespace sparsefw {

inline constexpr char kCudaModuleFile[] = "libsparsefw_cuda.so";
inline constexpr char kCudaModuleSymbol[] = "sparsefw_cuda_module";
inline constexpr int kCudaModuleAbi = SPARSEFW_CUDA_MODULE_ABI;

// Catches the change that forgot the number.
static_assert(sizeof(EngineProblem) + sizeof(StepRequest) + sizeof(StepStats) +
                      sizeof(RoundedMask) + sizeof(RefineRequest) + sizeof(RefinedMask) +
                      sizeof(ReconstructRequest) + sizeof(JointRequest) + sizeof(JointResult) +
                      sizeof(PruneRequest) + sizeof(PrunedWeights) + sizeof(EngineOptions) +
                      sizeof(DeviceDescription) + sizeof(MemoryRequest) + sizeof(StartChoice) ==
                  1128,
              "sparsefw/backend.h has changed: raise SPARSEFW_CUDA_MODULE_ABI, then correct "
              "this sum");

#define SPARSEFW_QUOTE_INNER(text) #text
#define SPARSEFW_QUOTE(text) SPARSEFW_QUOTE_INNER(text)
// CudaModule::build of what includes this. Not inline: the dynamic linker would
// give both sides the copy that was loaded first.
constexpr char kCudaModuleBuild[] =
    "sparsefw " SPARSEFW_VERSION
    ", layout " SPARSEFW_QUOTE(SPARSEFW_CUDA_MODULE_ABI) ", absl " SPARSEFW_QUOTE(
        ABSL_LTS_RELEASE_VERSION) ", compiler " __VERSION__;
#undef SPARSEFW_QUOTE
#undef SPARSEFW_QUOTE_INNER

struct CudaModuleDevices {
  // One for each device that can be used, in CUDA's order: name() "cuda", Describe().name
  // "cuda:<n>"; they live as long as the program.
  std::vector<const Backend*> usable;
  std::vector<UnusableDevice> unusable;
};

struct CudaModule {
  // kCudaModuleBuild of the module. Stays the first member whatever else changes.
  const char* build;
  // Looks for devices without using any: Backend::FreeMemoryBytes does that. Called once.
  // Errors: any, with a message that says why there is no device, to stand behind
  //         "there is no CUDA device: " (no driver, no device, no cuBLAS)
  absl::StatusOr<CudaModuleDevices> (*open)();
};

}  // namespace sparsefw

// The one function that the module exports. Never null; lives as long as the program.
extern "C" __attribute__((visibility("default"))) const sparsefw::CudaModule*
sparsefw_cuda_module();

#endif  // SPARSEFW_CORE_SRC_CUDA_MODULE_H_
