// The first look at a device: kernels one by one, each timed by events.
//
// A part is one run of the program. Every kernel gives two lines of JSON on standard output,
// flushed at once, so that whoever reads them knows which kernel hangs or ends the program:
//
//   {"begin": KERNEL}
//   {"item": KERNEL, "ok": true, "detail": TEXT, "facts": {"ms": t}}
//
// An error of CUDA ends the program with a message: after one of its sticky errors nothing else
// could be measured in the same process.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_H_

#include <cstdint>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/runtime/cuda_status.h"

namespace sparsefw::bench {

inline void OrDie(const cuda::CudaError& error) { OrDie(cuda::ToStatus(error)); }

// Copies values to the device, and waits.
template <typename T>
void Put(const std::vector<T>& from, T* to) {
  OrDie(cuda::CopyAndWait(to, from.data(), std::ssize(from), cudaMemcpyHostToDevice, nullptr));
}

// As the engine scales it for swaps and the joint search.
cuda::DeviceLayer<float> OnDevice(const SyntheticLayer& made, cudaStream_t stream);

// Takes the reports of the parts. Kernels are launched `launches` times; the median counts.
class Smoke {
 public:
  using Launch = std::function<absl::Status(cudaStream_t)>;

  explicit Smoke(int launches) : launches_(launches) {}
  bool failed() const { return failed_; }

  // `reset` prepares the data of each launch, outside of the clock.
  void Kernel(const std::string& name, const std::function<void()>& reset, const Launch& launch);
  // A line of something that is no kernel.
  void Report(const std::string& name, bool ok, const std::string& detail,
              nlohmann::ordered_json facts = nlohmann::ordered_json::object());
  void Begin(const std::string& name);

 private:
  double Milliseconds(const std::function<void()>& reset, const Launch& launch);

  int launches_;
  bool failed_ = false;
};

// The parts; rows and cols are those of the layer.
void SmokeDevice(Smoke& smoke);
void SmokeIteration(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols);
void SmokeCapture(Smoke& smoke, int64_t rows, int64_t cols);
// SparseGPT and ALPS, and their kernels.
void SmokePrune(Smoke& smoke, int64_t rows, int64_t cols);
// The kernels of swaps, new weights and saliency.
void SmokeRefine(Smoke& smoke, int64_t rows, int64_t cols);
// The joint search by the engine, and its launches.
void SmokeJoint(Smoke& smoke, int64_t rows, int64_t cols);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_H_
