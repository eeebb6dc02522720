#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/linalg/finite.h"
#include "core/src/linalg/gram_accumulator.h"
#include "core/src/parallel/host_info.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/reference/reference_engine.h"
#include "sparsefw/gram.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Gram accumulation, dense and in float64, one token after the other.
class ReferenceGramAccumulator final : public GramAccumulator {
 public:
  explicit ReferenceGramAccumulator(int64_t d_in) : sum_(d_in, d_in) {}

  absl::Status Add(ConstMatrixView chunk) override {
    SPARSEFW_RETURN_IF_ERROR(ValidateChunk(chunk, d_in(), token_count_));
    std::vector<double> x(static_cast<size_t>(d_in()));
    for (int64_t token = 0; token < chunk.rows(); ++token) {
      ConvertToDouble(chunk.row_bytes(token), chunk.dtype(), x.size(), x.data());
      for (size_t i = 0; i < x.size(); ++i) {
        double* row = sum_.row(static_cast<int64_t>(i));
        for (size_t j = 0; j < x.size(); ++j) row[j] += x[i] * x[j];
      }
    }
    token_count_ += chunk.rows();
    return absl::OkStatus();
  }

  absl::Status AddGram(ConstMatrixView gram, int64_t token_count) override {
    SPARSEFW_RETURN_IF_ERROR(ValidatePartialGram(gram, d_in(), token_count));
    for (int64_t i = 0; i < d_in(); ++i) {
      for (int64_t j = 0; j < d_in(); ++j) {
        sum_(i, j) += (ValueAt(gram, i, j) + ValueAt(gram, j, i)) / 2;
      }
    }
    token_count_ += token_count;
    return absl::OkStatus();
  }

  int64_t d_in() const override { return sum_.cols(); }
  int64_t token_count() const override { return token_count_; }

  absl::Status CopyRows(int64_t first, int64_t count, double* rows) override {
    std::copy_n(sum_.row(first), count * d_in(), rows);
    return absl::OkStatus();
  }

  // The sum is exactly symmetric: x_i x_j is x_j x_i.
  absl::Status SaveState(GramStateSink sink) override {
    SPARSEFW_RETURN_IF_ERROR(WriteGramStateHeader(d_in(), token_count_, 0, DType::kF32, sink));
    return WriteUpperRows(sum_.data(), 0, d_in(), d_in(), sink);
  }

  absl::Status RestoreState(GramStateSource source) override {
    SPARSEFW_ASSIGN_OR_RETURN(const GramStateHeader header, ReadGramStateHeader(d_in(), source));
    if (header.waiting > 0) {
      return Invalid("GRAM_STATE_INVALID",
                     "the reference takes no state with tokens that wait; got %d of them",
                     header.waiting);
    }
    SPARSEFW_RETURN_IF_ERROR(ReadUpperRows(sum_.data(), 0, d_in(), d_in(), source));
    for (int64_t i = 0; i < d_in(); ++i) {
      for (int64_t j = i + 1; j < d_in(); ++j) sum_(j, i) = sum_(i, j);
    }
    token_count_ = header.token_count;
    return absl::OkStatus();
  }

 private:
  Matrix<double> sum_;
  int64_t token_count_ = 0;
};

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
    SPARSEFW_RETURN_IF_ERROR(ValidateThreads(options.threads));
    return std::make_unique<ReferenceEngine>(options);
  }

  // The BLAS chooses its kernels by the processor.
  std::string checkpoint_tag() const override {
    return absl::StrFormat("reference 1, %s", ProcessorName());
  }

  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(
      int64_t d_in, int threads) const override {
    if (d_in < 1) {
      return Invalid("SHAPE_MISMATCH", "d_in must be at least 1; got %d", d_in);
    }
    SPARSEFW_RETURN_IF_ERROR(ValidateThreads(threads));
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
