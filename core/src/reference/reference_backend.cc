#include "core/src/reference/reference_backend.h"

#include <algorithm>
#include <memory>
#include <new>

#include "absl/strings/str_format.h"
#include "core/src/parallel/host_info.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/reference/reference_engine.h"
#include "core/src/reference/reference_gram.h"
#include "sparsefw/reason.h"

namespace sparsefw {
namespace {

class ReferenceBackendImpl final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }

  DeviceDescription Describe() const override {
    const HostMemory memory = ReadHostMemory();
    return {.name = "reference",
            .description = absl::StrFormat("dense float64 reference, %d threads, for comparison",
                                           ParallelContext(0).threads()),
            .memory_bytes = memory.total_bytes};
  }

  absl::StatusOr<int64_t> FreeMemoryBytes() const override {
    return ReadHostMemory().available_bytes;
  }

  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
      const EngineOptions& options) const override {
    return std::make_unique<ReferenceEngine>(options);
  }

  // The BLAS chooses its kernels by the processor.
  std::string checkpoint_tag() const override {
    return absl::StrFormat("reference 1, %s", ProcessorName());
  }

  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(int64_t d_in,
                                                                         int) const override {
    if (d_in < 1) {
      return Invalid("SHAPE_MISMATCH", "d_in must be at least 1; got %d", d_in);
    }
    try {
      return std::make_unique<ReferenceGramAccumulator>(d_in);
    } catch (const std::bad_alloc&) {
      return Refuse(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                    "no memory for a Gram accumulation of d_in=%d", d_in);
    }
  }

  // Float64: G, W, M and, at once in a step, three more like them; the fp32
  // saliency, the index list of a selection and two bit masks. Swaps need less
  // than a step does; reconstruction two more of G's size and the weights, the
  // joint search a tableau and two sets of weights.
  int64_t EstimateHostBytes(int64_t rows, int64_t cols,
                            const MemoryRequest& request) const override {
    const bool new_weights = request.reconstruct || request.joint;
    const int64_t reconstruct = new_weights ? 2 * 8 * cols * cols + 4 * rows * cols : 0;
    const int64_t joint = request.joint ? 2 * 8 * (cols + 1) * (cols + 1) + 8 * rows * cols : 0;
    return 8 * cols * cols + rows * cols * (5 * 8 + 4 + 8 + 1) + std::max(reconstruct, joint);
  }
};

}  // namespace

const Backend& ReferenceBackend() {
  static const ReferenceBackendImpl backend;
  return backend;
}

}  // namespace sparsefw
