// The device itself and its BLAS.
#include <string>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/runtime/cublas_library.h"

namespace sparsefw::bench {
namespace {

std::string VersionText(int version) {
  return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10);
}

}  // namespace

void SmokeDevice(Smoke& smoke) {
  smoke.Begin("device");
  int count = 0;
  OrDie(cuda::ToStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  int driver = 0;
  int runtime = 0;
  OrDie(cuda::ToStatus(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  OrDie(cuda::ToStatus(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"));
  cudaDeviceProp properties = {};
  OrDie(cuda::ToStatus(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties"));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  OrDie(cuda::ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
  smoke.Report(
      "device", true,
      absl::StrFormat("%s, compute capability %d.%d, %d GiB of which %d free, CUDA %s of "
                      "the driver, %s of the build",
                      properties.name, properties.major, properties.minor, total_bytes >> 30,
                      free_bytes >> 30, VersionText(driver), VersionText(runtime)),
      {{"devices", count}, {"name", properties.name}, {"memory_bytes", total_bytes}});
  smoke.Begin("cuBLAS");
  const cuda::CublasLibrary* library = OrDie(cuda::CublasLibrary::Open());
  smoke.Report("cuBLAS", true,
               absl::StrFormat("%s, version %s", library->name, OrDie(library->Version())));
}

}  // namespace sparsefw::bench
