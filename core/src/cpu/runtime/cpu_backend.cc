#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "core/src/cpu/iteration/frank_wolfe.h"
#include "core/src/cpu/joint/joint_search.h"
#include "core/src/cpu/linalg/half_product_loss.h"
#include "core/src/cpu/linalg/kernels.h"
#include "core/src/cpu/reconstruct/reconstruct.h"
#include "core/src/cpu/runtime/cpu_engine.h"
#include "core/src/cpu/swaps/swap_refine.h"
#include "core/src/linalg/blas.h"
#include "core/src/linalg/gram_accumulator.h"
#include "core/src/parallel/host_info.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw {
namespace {

// Highway's names where people use another one.
std::string InstructionSet() {
  const std::string_view target = cpu::SimdTargetName();
  if (target.starts_with("AVX3")) return "AVX-512";
  return std::string(target);
}

// size: of a value of the engine's precision.
int64_t LargestStage(int64_t rows, int64_t cols, const MemoryRequest& request, int64_t size) {
  const int threads = ParallelContext(0).threads();
  int64_t bytes = cpu::FrankWolfeBytes(rows, cols, threads, size);
  // The scores of the next warm start are chosen from while the last point's iteration is held.
  if (request.sweep) bytes += 4 * rows * cols;
  if (request.swaps) bytes = std::max(bytes, cpu::SwapRefineBytes(rows, cols, size));
  const int64_t weights = request.joint ? 4 * rows * cols : 0;  // of the start
  if (request.reconstruct || request.joint) {
    bytes = std::max(bytes, weights + cpu::ReconstructBytes(rows, cols, size));
  }
  if (request.joint) {
    bytes = std::max(bytes, weights + cpu::JointSearchBytes(rows, cols, threads, size));
  }
  return bytes;
}

class CpuBackendImpl final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  DeviceDescription Describe() const override {
    const HostMemory memory = ReadHostMemory();
    const int threads = ParallelContext(0).threads();
    return {.name = "cpu",
            .description = absl::StrFormat("%s, %d thread%s, %s", ProcessorName(), threads,
                                           threads == 1 ? "" : "s", InstructionSet()),
            .memory_bytes = memory.total_bytes};
  }

  absl::StatusOr<int64_t> FreeMemoryBytes() const override {
    return ReadHostMemory().available_bytes;
  }

  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
      const EngineOptions& options) const override {
    SPARSEFW_RETURN_IF_ERROR(ValidateThreads(options.threads));
    return std::make_unique<cpu::CpuEngine>(options);
  }

  // Its kernels are chosen by the processor, those of the BLAS by the processor or by
  // OPENBLAS_CORETYPE. The bits are the same for any number of threads.
  std::string checkpoint_tag() const override {
    return absl::StrFormat("cpu 10, %s, %s, BLAS %s", ProcessorName(), InstructionSet(),
                           BlasKernels());
  }

  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(
      int64_t d_in, int threads) const override {
    return CpuGramAccumulator::Create(d_in, threads);
  }

  // With what Solve holds beside the engine: the warm, fixed, rounded, best, last tried and
  // refined mask. The scores of the first warm start are gone before the engine is loaded;
  // iteration, swaps and reconstruction come one after the other.
  int64_t EstimateHostBytes(int64_t rows, int64_t cols,
                            const MemoryRequest& request) const override {
    const int64_t masks = 6 * rows * ((cols + 7) / 8);
    const int64_t size = PrecisionFor(rows, cols) == Precision::kFloat64 ? 8 : 4;
    return LargestStage(rows, cols, request, size) +
           cpu::HalfProductLossBytes(rows, cols, ParallelContext(0).threads()) + masks;
  }
};

}  // namespace

const Backend& CpuBackend() {
  static const CpuBackendImpl backend;
  return backend;
}

}  // namespace sparsefw
