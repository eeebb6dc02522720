// The first look at a device: kernels one by one against host arithmetic, each timed by events.
//
// A part is one run of the program. Every kernel gives two lines of JSON on standard output,
// flushed at once, so that whoever reads them knows which kernel hangs or ends the program:
//
//   {"begin": KERNEL}
//   {"item": KERNEL, "ok": true, "detail": TEXT, "facts": {"ms": t, "error": e, "limit": l}}
//
// An error of CUDA ends the program with a message: after one of its sticky errors nothing else
// could be measured in the same process.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/benchmarks/programs/bench_program.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/runtime/cuda_status.h"

namespace sparsefw::bench {

inline void OrDie(const cuda::CudaError& error) { OrDie(cuda::ToStatus(error)); }

// How far a result is off, and how far it may be.
struct Verdict {
  double error = 0;
  double limit = 0;
};

// The largest difference to `expected`, relative to the largest expected value.
Verdict Compare(const std::vector<double>& actual, const std::vector<double>& expected,
                double limit);
template <typename T>
std::vector<double> AsDoubles(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// `size` elements on the device with blocking copies.
template <typename T>
class DeviceValues {
 public:
  explicit DeviceValues(std::vector<T> values) : size_(values.size()) {
    buffer_ = OrDie(cuda::DeviceBuffer<T>::Create(static_cast<int64_t>(size_), nullptr));
    Set(values);
  }
  explicit DeviceValues(int64_t size) : DeviceValues(std::vector<T>(static_cast<size_t>(size))) {}

  void Set(const std::vector<T>& values) { Copy(buffer_.data(), values.data(), true); }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    Copy(values.data(), buffer_.data(), false);
    return values;
  }
  T Front() const { return Get().front(); }
  T* data() { return buffer_.data(); }

 private:
  void Copy(T* to, const T* from, bool up) const {
    OrDie(cuda::ToStatus(
        cudaMemcpyAsync(to, from, size_ * sizeof(T),
                        up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, nullptr),
        "cudaMemcpyAsync"));
    OrDie(cuda::ToStatus(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"));
  }

  size_t size_;
  cuda::DeviceBuffer<T> buffer_;
};

// Takes the reports of the parts. `timing`: kernels are launched `launches` times and timed, not
// checked.
class Smoke {
 public:
  using Launch = std::function<absl::Status(cudaStream_t)>;

  Smoke(bool timing, int launches) : timing_(timing), launches_(launches) {}
  bool timing() const { return timing_; }
  bool failed() const { return failed_; }

  // `reset` prepares the data of each launch, outside of the clock.
  void Kernel(const std::string& name, const std::function<void()>& reset, const Launch& launch,
              const std::function<Verdict()>& check);
  // A line of something that is no kernel.
  void Report(const std::string& name, bool ok, const std::string& detail,
              nlohmann::ordered_json facts = nlohmann::ordered_json::object());
  void Begin(const std::string& name);

 private:
  double Milliseconds(const std::function<void()>& reset, const Launch& launch);

  bool timing_;
  int launches_;
  bool failed_ = false;
};

// The parts; rows and cols are those of the layer.
void SmokeDevice(Smoke& smoke);
void SmokeIteration(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols);
void SmokeCapture(Smoke& smoke, int64_t rows, int64_t cols);
void SmokeDense(Smoke& smoke, int64_t rows, int64_t cols);
void SmokeLayerKernels(Smoke& smoke, int64_t rows, int64_t cols);
void SmokeGramKernels(Smoke& smoke, int64_t rows, int64_t cols);
// SparseGPT and ALPS beside the CPU; with timing also the time of their kernels.
void SmokePrune(Smoke& smoke, int64_t rows, int64_t cols);
// The joint search by the engine, beside the CPU engine; with timing, its launches.
void SmokeJoint(Smoke& smoke, int64_t rows, int64_t cols);
// Swaps, reconstruction and solves by the engine, beside the reference engine.
void SmokeEngine(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_SMOKE_SMOKE_H_
