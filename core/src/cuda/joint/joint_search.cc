#include "core/src/cuda/joint/joint_search.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/src/cuda/joint/batch_search.h"
#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/reconstruct/reconstruct.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/select/start_choice.h"
#include "core/src/joint/joint_rows.h"
#include "core/src/joint/joint_rules.h"
#include "core/src/joint/row_window.h"
#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/saliency.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

size_t Index(int64_t index) { return static_cast<size_t>(index); }

template <typename Real>
class JointSearch {
 public:
  JointSearch(const EngineProblem& problem, DeviceLayer<Real>& layer, const Scale& scale,
              const Mask& start, const JointRequest& request, int threads,
              const ExecutionContext& context)
      : problem_(problem),
        layer_(layer),
        scale_(scale),
        start_(start),
        request_(request),
        context_(context),
        host_(threads),
        rows_(problem, scale, start, request),
        budget_(context, request.out_of_time) {}

  JointRows& found() { return rows_; }
  bool converged() const { return converged_; }

  absl::Status Prepare() {
    SPARSEFW_ASSIGN_OR_RETURN(products_, DeviceBuffer<double>::Create(size(), context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(auto weights, Uploaded(*request_.weights));
    if (request_.fixed == nullptr) SPARSEFW_RETURN_IF_ERROR(ChooseFixed(weights));
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> losses,
                              Losses(weights, scale_.weights_factor()));
    for (int64_t row = 0; row < rows(); ++row) rows_.state(row).start_loss = losses[Index(row)];
    SPARSEFW_RETURN_IF_ERROR(FindBounds());
    SPARSEFW_RETURN_IF_ERROR(Damp());
    // W - 0 weights, whose loss is that of an empty mask.
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> energies, Losses(weights, 0));
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> squares, WeightedSquares());
    for (int64_t row = 0; row < rows(); ++row) {
      rows_.state(row).energy = energies[Index(row)];
      rows_.SetTolerance(row, squares[Index(row)], kTableauTolerance<Real>);
    }
    return absl::OkStatus();
  }

  // Each row by itself: where one budget serves the matrix, rows keep as many weights as they had.
  absl::Status SearchRows() {
    std::vector<RowWindow> windows(Index(rows()));
    SPARSEFW_RETURN_IF_ERROR(host_.ForEach(rows(), [&](int64_t row) {
      const std::vector<uint8_t> kept = rows_.KeptOf(row);
      const std::vector<uint8_t> fixed = rows_.FixedOf(row);
      DivideColumns({.excluded = rows_.ExcludedOf(kept),
                     .bounds = bounds_.data() + row * layer_.stride,
                     .kept = kept.data(),
                     .fixed = fixed.data()},
                    layer_.cols, rows_.groups(), windows[Index(row)]);
    }));
    std::vector<float>().swap(bounds_);
    // Rows of a batch are alike: each takes the memory of the largest.
    std::vector<int64_t> order(Index(rows()));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return windows[Index(a)].fixed.size() > windows[Index(b)].fixed.size();
    });
    BatchSearch<Real> search(layer_, products_.data(), rows_, budget_, host_, context_);
    SPARSEFW_RETURN_IF_ERROR(search.Allocate());
    int64_t first = 0;
    while (first < rows() && !budget_.Spent()) {
      SPARSEFW_ASSIGN_OR_RETURN(
          const int64_t searched,
          search.Run(windows, std::span<const int64_t>(order).subspan(Index(first))));
      first += searched;
    }
    converged_ = first == rows() && search.converged();
    products_.Reset();
    return absl::OkStatus();
  }

  // More exactly than in the tableau. Without time those of the tableau stand. Losses are of G
  // itself from here on.
  absl::Status SolveWeights() {
    absl::StatusOr<Matrix<float>> solved = absl::CancelledError("");
    if (!context_.stopped()) {
      solved =
          ReconstructWeights(problem_, layer_, scale_, rows_.result().mask, &rows_.result().weights,
                             request_.EndOfSolving(&converged_), context_);
    }
    SPARSEFW_RETURN_IF_ERROR(UploadDiagonal(diagonal_, layer_, context_.stream()));
    if (absl::IsCancelled(solved.status())) return absl::OkStatus();
    SPARSEFW_RETURN_IF_ERROR(solved.status());
    rows_.result().weights = *std::move(solved);
    return absl::OkStatus();
  }

  // What the weights found lose. Where it cannot be found any more, L* is an upper estimate:
  // damping adds to it.
  absl::Status TakeLosses() {
    const auto find = [&]() -> absl::StatusOr<std::vector<double>> {
      SPARSEFW_RETURN_IF_ERROR(context_.CheckStop());
      SPARSEFW_ASSIGN_OR_RETURN(products_, DeviceBuffer<double>::Create(size(), context_.stream()));
      SPARSEFW_ASSIGN_OR_RETURN(auto weights, Uploaded(rows_.result().weights));
      return Losses(weights, scale_.weights_factor());
    };
    const absl::StatusOr<std::vector<double>> losses = find();
    if (absl::IsCancelled(losses.status())) return absl::OkStatus();
    SPARSEFW_RETURN_IF_ERROR(losses.status());
    for (int64_t row = 0; row < rows(); ++row) rows_.state(row).loss = (*losses)[Index(row)];
    return absl::OkStatus();
  }

 private:
  int64_t rows() const { return layer_.rows; }
  int64_t size() const { return layer_.size(); }

  absl::StatusOr<DeviceBuffer<float>> Uploaded(const Matrix<float>& weights) {
    SPARSEFW_ASSIGN_OR_RETURN(auto buffer, DeviceBuffer<float>::Create(size(), context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(StagedUpload(weights.view(), buffer.data(),
                                          Index(layer_.stride) * sizeof(float), context_.stream(),
                                          context_.stop()));
    return buffer;
  }

  // By the scores of the host, and so with its choice. Their padding is no candidate.
  absl::Status ChooseFixed(const DeviceBuffer<float>& weights) {
    SPARSEFW_ASSIGN_OR_RETURN(
        const SaliencySource source,
        MakeSaliencySource(request_.weights->view(), DiagonalOf(problem_.gram),
                           {.method = SaliencyMethod::kWanda}));
    SPARSEFW_ASSIGN_OR_RETURN(const auto factor, context_.Upload(source.terms()->factor));
    SPARSEFW_ASSIGN_OR_RETURN(const auto among, UploadMask(start_, context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(
        const auto fixed,
        SelectSalient({.weights = {weights.data(), DType::kF32, rows(), layer_.stride},
                       .factor = factor.data()},
                      layer_.cols, among.data(),
                      FixedGroups(problem_.pattern, rows(), layer_.cols, request_.alpha),
                      context_));
    SPARSEFW_ASSIGN_OR_RETURN(Mask chosen,
                              DownloadMask(fixed.data(), rows(), layer_.cols, context_.stream()));
    rows_.SetFixed(std::move(chosen));
    return absl::OkStatus();
  }

  // ||(W - weights) X||^2 of every row in the scale of the layer, by the gram as it is now;
  // products_ = (W - weights) G. `factor`: of the weights.
  absl::StatusOr<std::vector<double>> Losses(DeviceBuffer<float>& weights, double factor) {
    const RawRows missing = {
        .weights = {layer_.weights.data(), DTypeOf<Real>(), rows(), layer_.cols},
        .stride = layer_.stride,
        .other = weights.data(),
        .other_factor = factor};
    SPARSEFW_RETURN_IF_ERROR(Float64Product(layer_, missing, products_.data(), context_));
    SPARSEFW_ASSIGN_OR_RETURN(auto losses, DeviceBuffer<double>::Zeroed(rows(), context_.stream()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchAddRowDots(missing, products_.data(), losses.data(), context_.stream()));
    return context_.Download(losses);
  }

  // What a column outside would gain at least, from the residuals that the start's losses needed.
  absl::Status FindBounds() {
    SPARSEFW_ASSIGN_OR_RETURN(auto bounds, DeviceBuffer<float>::Create(size(), context_.stream()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchGainBounds(layer_.gram.data(), products_.data(), rows(),
                                                   layer_.cols, layer_.stride, bounds.data(),
                                                   context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(bounds_, context_.Download(bounds));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> WeightedSquares() {
    SPARSEFW_ASSIGN_OR_RETURN(auto squares,
                              DeviceBuffer<double>::Create(rows(), context_.stream()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchWeightedSquares(layer_.gram.data(), layer_.weights.data(),
                                                        rows(), layer_.cols, layer_.stride,
                                                        squares.data(), context_.stream()));
    return context_.Download(squares);
  }

  // G becomes H; SolveWeights undoes it.
  absl::Status Damp() {
    SPARSEFW_ASSIGN_OR_RETURN(diagonal_, DownloadDiagonal(layer_, context_.stream()));
    std::vector<Real> damped = diagonal_;
    const Real added = DampingTerm(diagonal_, request_.options.damping);
    for (Real& entry : damped) entry += added;
    return UploadDiagonal(damped, layer_, context_.stream());
  }

  const EngineProblem& problem_;
  DeviceLayer<Real>& layer_;
  const Scale scale_;
  const Mask& start_;
  const JointRequest& request_;
  const ExecutionContext& context_;
  const ParallelContext host_;
  JointRows rows_;
  SearchBudget budget_;
  DeviceBuffer<double> products_;  // [rows, stride]: b = wH
  std::vector<float> bounds_;      // [rows, stride]: gains of columns outside, at least
  std::vector<Real> diagonal_;     // without the damping
  bool converged_ = false;
};

}  // namespace

template <typename Real>
absl::StatusOr<JointResult> SearchJointly(const EngineProblem& problem, DeviceLayer<Real>& layer,
                                          const Scale& scale, const Mask& start,
                                          const JointRequest& request, int threads,
                                          const ExecutionContext& context) {
  JointSearch<Real> search(problem, layer, scale, start, request, threads, context);
  return RunJointStages(search);
}

template <typename Real>
int64_t JointSearchBytes(int64_t rows, int64_t cols) {
  const int64_t size = rows * StrideOf(cols);
  const int64_t products = 8 * size;
  const int64_t preparing = products + 4 * size +
                            std::max({Float64ProductBytes<Real>(rows, cols), 4 * size,
                                      StartChoiceBytes(rows, cols) + 8 * cols});
  const int64_t solving = ReconstructBytes<Real>(rows, cols, /*guessed=*/true);
  return std::max({preparing, products + BatchBytes<Real>(rows, cols), solving});
}

int64_t JointHostBytes(int64_t rows, int64_t cols) {
  const int64_t stride = StrideOf(cols);
  // Bounds and windows of all rows; arrays and results of a batch; the weights.
  return (4 + 4) * rows * stride + kMostBatchRows * stride * (4 * 4 + 8 + 1) + 2 * 4 * rows * cols;
}

template absl::StatusOr<JointResult> SearchJointly(const EngineProblem&, DeviceLayer<float>&,
                                                   const Scale&, const Mask&, const JointRequest&,
                                                   int, const ExecutionContext&);
template absl::StatusOr<JointResult> SearchJointly(const EngineProblem&, DeviceLayer<double>&,
                                                   const Scale&, const Mask&, const JointRequest&,
                                                   int, const ExecutionContext&);
template int64_t JointSearchBytes<float>(int64_t, int64_t);
template int64_t JointSearchBytes<double>(int64_t, int64_t);

}  // namespace sparsefw::cuda
