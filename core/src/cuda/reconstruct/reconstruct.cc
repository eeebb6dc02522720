#include "core/src/cuda/reconstruct/reconstruct.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/linalg/symmetric_product.h"
#include "core/src/cuda/memory/device_arrays.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/reconstruct/reconstruct_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kPanelRows = 2048;

// The memory of conjugate gradients on panels of `rows` rows.
template <typename Real>
struct GradientMemory {
  GradientPanel<Real> panel = {};
  int* from = nullptr;        // [rows]: positions that stay
  int* unfinished = nullptr;  // rows, counted by the kernels
};

// What belongs to the panel's stride.
template <typename Real>
void LayOut(int64_t rows, GradientMemory<Real>& memory, DeviceArrays& arrays) {
  GradientPanel<Real>& panel = memory.panel;
  const int64_t size = rows * panel.stride;
  arrays.Add(panel.stride, panel.preconditioner);
  for (Real** matrix : {&panel.solution, &panel.residual, &panel.direction, &panel.product}) {
    arrays.Add(size, *matrix);
  }
  arrays.Add(rows, panel.rows);
  arrays.Add(rows, panel.active);
  arrays.Add(rows, memory.from);
  arrays.Add(1, memory.unfinished);
}

// Solves G_SS d = r_S for every row of a panel, S the row's kept columns.
//
// Rows that are done are left alone, and leave the product once they are half of it, so that the
// last slow ones cost little. Which rows take part in a product does not touch the others.
//
// Memory: 4 * sizeof(Real) * rows * stride bytes on the device, and symmetric_product.h
template <typename Real>
class RowConjugateGradients {
 public:
  // solved_before: rows begin at weights that were solved on the mask before: the least that is
  // left is rounding.
  RowConjugateGradients(const DeviceLayer<Real>& layer, bool solved_before,
                        const ExecutionContext& context)
      : layer_(layer), context_(context), arrays_(context.stream()) {
    panel_.cols = layer.cols;
    panel_.stride = layer.stride;
    panel_.solved_before = solved_before;
  }
  RowConjugateGradients(const RowConjugateGradients&) = delete;  // it refers to its own members

  // For panels of at most `rows` rows.
  absl::Status Allocate(int64_t rows) {
    LayOut(rows, memory_, arrays_);
    SPARSEFW_RETURN_IF_ERROR(arrays_.status());
    SPARSEFW_ASSIGN_OR_RETURN(auto symmetric, SymmetricProduct<Real>::Create(
                                                  layer_, rows, SymmetricProduct<Real>::Use::kRows,
                                                  ProductPrecision::kFloat32, context_));
    symmetric_.emplace(std::move(symmetric));
    panel_.product_scale = symmetric_->scale();
    return ToStatus(LaunchPreconditioner(panel_, layer_.gram.data(), context_.stream()));
  }

  static int64_t Bytes(int64_t rows, int64_t cols) {
    GradientMemory<Real> memory;
    memory.panel.stride = StrideOf(cols);
    DeviceArrays arrays;
    LayOut(rows, memory, arrays);
    return arrays.bytes() +
           SymmetricProduct<Real>::Bytes(rows, cols, SymmetricProduct<Real>::Use::kRows);
  }

  // kept: words of the panel's mask; residual [rows, stride], columns outside
  // the mask are ignored; losses [rows]: at d = 0. All on the device.
  // Errors: Cancelled
  absl::Status Solve(const BitWord* kept, int64_t rows, const double* residual,
                     const double* losses, const std::function<bool()>& out_of_time) {
    panel_.kept = kept;
    positions_.resize(static_cast<size_t>(rows));
    std::iota(positions_.begin(), positions_.end(), 0);
    SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(panel_.active, positions_.data(), std::ssize(positions_),
                                         cudaMemcpyHostToDevice, context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(int unfinished, context_.Counted(memory_.unfinished, [&] {
      return LaunchBeginGradients(panel_, rows, residual, losses, memory_.unfinished,
                                  context_.stream());
    }));
    for (int64_t iteration = 0; iteration < kReconstructIterations && unfinished > 0; ++iteration) {
      if (out_of_time && out_of_time()) break;
      if (2 * unfinished <= std::ssize(positions_)) {
        SPARSEFW_RETURN_IF_ERROR(LeaveOutDone(rows));
      }
      const int64_t count = std::ssize(positions_);
      SPARSEFW_RETURN_IF_ERROR(symmetric_->MultiplyRows(count, panel_.direction, panel_.product));
      SPARSEFW_ASSIGN_OR_RETURN(unfinished, context_.Counted(memory_.unfinished, [&] {
        return LaunchGradientStep(panel_, count, iteration, memory_.unfinished, context_.stream());
      }));
    }
    return absl::OkStatus();
  }

  const Real* solution() const { return panel_.solution; }  // [rows, stride]

 private:
  // Directions stay in the order of the rows, without gaps. They move into the
  // memory of the product, which is about to be computed anew.
  absl::Status LeaveOutDone(int64_t rows) {
    std::vector<GradientRow> states(static_cast<size_t>(rows));
    SPARSEFW_RETURN_IF_ERROR(
        CopyAndWait(states.data(), panel_.rows, rows, cudaMemcpyDeviceToHost, context_.stream()));
    std::vector<int> from;
    std::vector<int> stay;
    for (size_t position = 0; position < positions_.size(); ++position) {
      const int row = positions_[position];
      if (states[static_cast<size_t>(row)].done != 0) continue;
      from.push_back(static_cast<int>(position));
      stay.push_back(row);
    }
    positions_ = std::move(stay);
    SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(panel_.active, positions_.data(), std::ssize(positions_),
                                         cudaMemcpyHostToDevice, context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(memory_.from, from.data(), std::ssize(from),
                                         cudaMemcpyHostToDevice, context_.stream()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchGather(panel_.direction, memory_.from, std::ssize(from),
                                               layer_.stride, panel_.product, context_.stream()));
    std::swap(panel_.direction, panel_.product);
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(context_.stream()));  // `from` goes
    return absl::OkStatus();
  }

  const DeviceLayer<Real>& layer_;
  const ExecutionContext& context_;
  DeviceArrays arrays_;
  GradientMemory<Real> memory_;
  GradientPanel<Real>& panel_ = memory_.panel;
  std::optional<SymmetricProduct<Real>> symmetric_;
  std::vector<int> positions_;  // row of every position, as panel_.active
};

// The rest of what a panel takes.
struct ReconstructMemory {
  float* result = nullptr;          // [rows, stride]
  float* guess = nullptr;           // [rows, stride], where there is one
  double* product = nullptr;        // [rows, stride]
  double* masked_losses = nullptr;  // [rows]
  double* losses = nullptr;         // [rows]
};

void LayOut(int64_t rows, int64_t stride, bool guessed, ReconstructMemory& memory,
            DeviceArrays& arrays) {
  arrays.Add(rows * stride, memory.result);
  if (guessed) arrays.Add(rows * stride, memory.guess);
  arrays.Add(rows * stride, memory.product);
  arrays.Add(rows, memory.masked_losses);
  arrays.Add(rows, memory.losses);
}

template <typename Real>
class Reconstruction {
 public:
  // guess: null where rows begin at their masked weights.
  Reconstruction(const EngineProblem& problem, const DeviceLayer<Real>& layer, const Scale& scale,
                 const Matrix<float>* guess, const ExecutionContext& context)
      : layer_(layer),
        scale_(scale),
        dtype_(problem.weights.dtype()),
        gram_rounding_(GramRounding(problem.gram.dtype(), DTypeOf<Real>())),
        guess_(guess),
        context_(context),
        panel_rows_(std::min(kPanelRows, layer.rows)),
        weights_(layer.rows, layer.cols),
        arrays_(context.stream()),
        gradients_(layer, guess != nullptr, context) {}

  absl::StatusOr<Matrix<float>> Run(const Mask& mask, const std::function<bool()>& out_of_time) {
    SPARSEFW_ASSIGN_OR_RETURN(kept_, UploadMask(mask, context_.stream()));
    LayOut(panel_rows_, layer_.stride, guess_ != nullptr, memory_, arrays_);
    SPARSEFW_RETURN_IF_ERROR(arrays_.status());
    SPARSEFW_RETURN_IF_ERROR(gradients_.Allocate(panel_rows_));
    for (int64_t first = 0; first < layer_.rows; first += panel_rows_) {
      const ReconstructedRows<Real> panel = Panel(first);
      if (guess_ != nullptr) SPARSEFW_RETURN_IF_ERROR(UploadGuess(first, panel.rows));
      SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchTakeMasked(panel, context_.stream()));
      if (!out_of_time || !out_of_time()) {
        SPARSEFW_RETURN_IF_ERROR(SolvePanel(panel, out_of_time));
      }
      SPARSEFW_RETURN_IF_ERROR(Download(first, panel.rows));
    }
    return std::move(weights_);
  }

 private:
  absl::Status UploadGuess(int64_t first, int64_t rows) {
    return StagedUpload(guess_->view().Rows(first, rows), memory_.guess,
                        static_cast<size_t>(layer_.stride) * sizeof(float), context_.stream(),
                        context_.stop());
  }

  ReconstructedRows<Real> Panel(int64_t first) {
    return {.rows = std::min(panel_rows_, layer_.rows - first),
            .cols = layer_.cols,
            .stride = layer_.stride,
            .weights = layer_.weights.data() + first * layer_.stride,
            .gram = layer_.gram.data(),
            .gram_rounding = gram_rounding_,
            .kept = kept_.data() + first * layer_.words(),
            .result = memory_.result,
            .factor = scale_.weights_factor(),
            .dtype = dtype_,
            .guess = memory_.guess};
  }

  absl::Status SolvePanel(const ReconstructedRows<Real>& panel,
                          const std::function<bool()>& out_of_time) {
    SPARSEFW_RETURN_IF_ERROR(RowLosses(panel, memory_.masked_losses));
    SPARSEFW_RETURN_IF_ERROR(gradients_.Solve(panel.kept, panel.rows, memory_.product,
                                              memory_.masked_losses, out_of_time));
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchTakeSolution(panel, gradients_.solution(), context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(RowLosses(panel, memory_.losses));
    return ToStatus(
        LaunchKeepBetter(panel, memory_.masked_losses, memory_.losses, context_.stream()));
  }

  // Losses of the panel's weights in each row; the product = (W - weights) G.
  absl::Status RowLosses(const ReconstructedRows<Real>& panel, double* losses) {
    const RawRows missing = {.weights = {panel.weights, DTypeOf<Real>(), panel.rows, panel.cols},
                             .stride = panel.stride,
                             .other = panel.result,
                             .other_factor = panel.factor};
    SPARSEFW_RETURN_IF_ERROR(Float64Product(layer_, missing, memory_.product, context_));
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
        losses, 0, static_cast<size_t>(panel.rows) * sizeof(double), context_.stream()));
    return ToStatus(LaunchAddRowDots(missing, memory_.product, losses, context_.stream()));
  }

  absl::Status Download(int64_t first, int64_t rows) {
    const auto row_bytes = static_cast<size_t>(layer_.cols) * sizeof(float);
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        cudaMemcpy2DAsync(weights_.row(first), row_bytes, memory_.result,
                          static_cast<size_t>(layer_.stride) * sizeof(float), row_bytes,
                          static_cast<size_t>(rows), cudaMemcpyDeviceToHost, context_.stream()));
    return context_.Await();
  }

  const DeviceLayer<Real>& layer_;
  const Scale scale_;
  const DType dtype_;
  const double gram_rounding_;
  const Matrix<float>* const guess_;
  const ExecutionContext& context_;
  const int64_t panel_rows_;
  Matrix<float> weights_;  // the result
  DeviceBuffer<BitWord> kept_;
  DeviceArrays arrays_;
  ReconstructMemory memory_;
  RowConjugateGradients<Real> gradients_;
};

}  // namespace

template <typename Real>
absl::StatusOr<Matrix<float>> ReconstructWeights(const EngineProblem& problem,
                                                 const DeviceLayer<Real>& layer, const Scale& scale,
                                                 const Mask& mask, const Matrix<float>* guess,
                                                 const std::function<bool()>& out_of_time,
                                                 const ExecutionContext& context) {
  return Reconstruction<Real>(problem, layer, scale, guess, context).Run(mask, out_of_time);
}

template <typename Real>
int64_t ReconstructBytes(int64_t rows, int64_t cols, bool guessed) {
  const int64_t stride = StrideOf(cols);
  const int64_t panel = std::min(kPanelRows, rows);
  ReconstructMemory memory;
  DeviceArrays arrays;
  LayOut(panel, stride, guessed, memory, arrays);
  const int64_t bits = rows * stride / 8;
  return bits + arrays.bytes() + RowConjugateGradients<Real>::Bytes(panel, cols) +
         Float64ProductBytes<Real>(panel, cols);
}

#define SPARSEFW_INSTANTIATE(Real)                                                  \
  template absl::StatusOr<Matrix<float>> ReconstructWeights(                        \
      const EngineProblem&, const DeviceLayer<Real>&, const Scale&, const Mask&,    \
      const Matrix<float>*, const std::function<bool()>&, const ExecutionContext&); \
  template int64_t ReconstructBytes<Real>(int64_t, int64_t, bool)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
