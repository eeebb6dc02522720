// A module that stands for CUDA's where there is no device. What it does is in
// the environment variable SPARSEFW_FAKE_CUDA:
//
//   not set       two devices, which compute as the reference does; on the PCI bus the
//                 second one comes first
//   other_build   it was made from something else
//   no_driver     open returns a status
//   no_device     open finds nothing
//   exception     open throws
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/cuda/module.h"
#include "core/src/reference/reference_engine.h"

namespace sparsefw {
namespace {

std::string_view Behaviour() {
  const char* const value = std::getenv("SPARSEFW_FAKE_CUDA");
  return value == nullptr ? "" : value;
}

class FakeDevice final : public Backend {
 public:
  explicit FakeDevice(int number) : number_(number) {}

  std::string_view name() const override { return "cuda"; }
  bool has_device_memory() const override { return true; }
  DeviceDescription Describe() const override {
    return {.name = absl::StrFormat("cuda:%d", number_),
            .description = absl::StrFormat("Fake GPU %c", 'A' + number_),
            .memory_bytes = (number_ + 1) * (int64_t{1} << 30),
            .pci_bus_id = number_ == 0 ? "00000000:82:00.0" : "00000000:03:00.0"};
  }
  absl::StatusOr<int64_t> FreeMemoryBytes() const override {
    return (number_ + 1) * (int64_t{1} << 29);
  }
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
      const EngineOptions& options) const override {
    return ReferenceBackend().CreateEngine(options);
  }
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(
      int64_t d_in, int threads) const override {
    return ReferenceBackend().CreateGramAccumulator(d_in, threads);
  }
  int64_t EstimateHostBytes(int64_t rows, int64_t cols,
                            const MemoryRequest& request) const override {
    return ReferenceBackend().EstimateHostBytes(rows, cols, request);
  }

 private:
  const int number_;
};

absl::StatusOr<CudaModuleDevices> Open() {
  static const FakeDevice first(0);
  static const FakeDevice second(1);
  if (Behaviour() == "no_driver") {
    return absl::FailedPreconditionError("no CUDA driver: libcuda.so.1 is not installed");
  }
  if (Behaviour() == "no_device") return CudaModuleDevices();
  if (Behaviour() == "exception") throw std::runtime_error("thrown on purpose");
  return CudaModuleDevices{{&first, &second}, {}};
}

constexpr CudaModule kModule = {kCudaModuleBuild, Open};
constexpr CudaModule kOtherModule = {"sparsefw 0.0.1, layout 0, of a test", Open};

}  // namespace
}  // namespace sparsefw

const sparsefw::CudaModule* sparsefw_cuda_module() {
  return sparsefw::Behaviour() == "other_build" ? &sparsefw::kOtherModule : &sparsefw::kModule;
}
