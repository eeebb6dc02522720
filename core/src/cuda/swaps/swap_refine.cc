#include "core/src/cuda/swaps/swap_refine.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "core/src/cuda/swaps/row_matching.h"
#include "core/src/cuda/swaps/swap_between_rows.h"
#include "core/src/cuda/swaps/swap_row.h"
#include "core/src/cuda/swaps/swap_setup.h"
#include "core/src/cuda/swaps/swap_state.h"
#include "sparsefw/pattern.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

// A launch takes one step at first, so that small layers look at the clock as
// well, and then as many as together read this many entries: some 30 ms, if all
// rows take all of them.
constexpr int kShortLaunches = 8;
constexpr int64_t kEntriesOfLaunch = int64_t{1} << 32;
constexpr int64_t kEntriesOfRow = int64_t{1} << 25;

int StepsOf(int launch, int64_t rows, int64_t entries_of_step) {
  if (launch < kShortLaunches) return 1;
  const int64_t steps = std::min(kEntriesOfLaunch / rows, kEntriesOfRow) / entries_of_step;
  return static_cast<int>(std::clamp<int64_t>(steps, 1, 1 << 20));
}

template <typename Real>
class SwapRefinement {
 public:
  SwapRefinement(const DeviceLayer<Real>& layer, const RefineRequest& request,
                 const ExecutionContext& context)
      : layer_(layer), request_(request), context_(context) {}

  // Errors: Cancelled
  absl::Status Load(const EngineProblem& problem, const Mask& start) {
    groups_ = GroupsOf(problem.pattern, layer_.rows, layer_.cols);
    SPARSEFW_ASSIGN_OR_RETURN(kept_, UploadMask(start, context_.stream()));
    if (request_.keep_fixed) {
      SPARSEFW_ASSIGN_OR_RETURN(locked_, UploadMask(*problem.fixed, context_.stream()));
    }
    SPARSEFW_RETURN_IF_ERROR(Allocate());
    SPARSEFW_RETURN_IF_ERROR(ChooseSharedBytes());
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchDiagonal(layer_.gram.data(), layer_.cols, layer_.stride,
                                                 diagonal_.data(), reach_.data(),
                                                 context_.stream()));
    const RawRows pruned = {
        .weights = {layer_.weights.data(), DTypeOf<Real>(), layer_.rows, layer_.cols},
        .stride = layer_.stride,
        .kept = kept_.data()};
    const auto fill = [&](int64_t first, int64_t count, int64_t depth, double* out) {
      return ToStatus(LaunchRawColumns(pruned, first, count, depth, out, context_.stream()));
    };
    SPARSEFW_RETURN_IF_ERROR(Float64Product(layer_, layer_.rows, fill, product_.data(), context_));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchTolerance(State(), tolerance_.data(), context_.stream()));
    if (!groups_.whole_matrix) return absl::OkStatus();
    std::vector<double> tolerance(static_cast<size_t>(layer_.rows));
    SPARSEFW_RETURN_IF_ERROR(Download(tolerance_.data(), tolerance));
    matching_.emplace(std::move(tolerance));
    return absl::OkStatus();
  }

  absl::Status Run() {
    if (!groups_.whole_matrix) return RefineRows();
    // Exchanges between rows first: they are cheap, and move weights to where
    // rows need them before rows are looked at pair by pair.
    for (bool first = true; !Spent(); first = false) {
      SPARSEFW_ASSIGN_OR_RETURN(const bool exchanged, ExchangeBetweenRows());
      if (!exchanged && !first) break;
      SPARSEFW_RETURN_IF_ERROR(RefineRows());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<RefinedMask> Result(const Scale& scale) {
    std::vector<RowProgress> progress(static_cast<size_t>(layer_.rows));
    SPARSEFW_RETURN_IF_ERROR(Download(progress_.data(), progress));
    for (const RowProgress& row : progress) {
      swaps_ += row.swaps;
      loss_change_ += row.loss_change;
    }
    SPARSEFW_ASSIGN_OR_RETURN(Mask mask,
                              DownloadMask(kept_, layer_.rows, layer_.cols, context_.stream()));
    return RefinedMask{.mask = std::move(mask),
                       .swaps = swaps_,
                       .loss_change = scale.Unscaled(loss_change_),
                       .converged = !spent_};
  }

 private:
  absl::Status Allocate() {
    const cudaStream_t stream = context_.stream();
    const int64_t rows = layer_.rows;
    SPARSEFW_ASSIGN_OR_RETURN(diagonal_, DeviceBuffer<double>::Create(layer_.stride, stream));
    SPARSEFW_ASSIGN_OR_RETURN(reach_, DeviceBuffer<double>::Create(layer_.stride, stream));
    SPARSEFW_ASSIGN_OR_RETURN(tolerance_, DeviceBuffer<double>::Create(rows, stream));
    SPARSEFW_ASSIGN_OR_RETURN(product_, DeviceBuffer<double>::Create(layer_.size(), stream));
    const int64_t listed = Sweeps() ? layer_.size() : 0;
    SPARSEFW_ASSIGN_OR_RETURN(order_, DeviceBuffer<int32_t>::Create(listed, stream));
    SPARSEFW_ASSIGN_OR_RETURN(scratch_, DeviceBuffer<int32_t>::Create(listed, stream));
    SPARSEFW_ASSIGN_OR_RETURN(progress_, DeviceBuffer<RowProgress>::Zeroed(rows, stream));
    SPARSEFW_ASSIGN_OR_RETURN(active_, DeviceBuffer<int>::Create(1, stream));
    SPARSEFW_ASSIGN_OR_RETURN(terms_, DeviceBuffer<RowTerms>::Create(rows, stream));
    SPARSEFW_ASSIGN_OR_RETURN(moves_, DeviceBuffer<RowMove>::Create(rows, stream));
    return absl::OkStatus();
  }

  absl::Status ChooseSharedBytes() {
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t most, MostSharedBytes());
    shared_bytes_ = SharedProductBytes(layer_.stride, static_cast<size_t>(most));
    return absl::OkStatus();
  }

  SwapState<Real> State() {
    return {.rows = layer_.rows,
            .cols = layer_.cols,
            .stride = layer_.stride,
            .group_cols = groups_.group_cols,
            .weights = layer_.weights.data(),
            .gram = layer_.gram.data(),
            .diagonal = diagonal_.data(),
            .reach = reach_.data(),
            .tolerance = tolerance_.data(),
            .locked = locked_.data(),
            .kept = kept_.data(),
            .order = order_.data(),
            .scratch = scratch_.data(),
            .product = product_.data(),
            .progress = progress_.data(),
            .shared_bytes = shared_bytes_};
  }

  bool Sweeps() const { return groups_.group_cols > kNarrowGroup; }

  // Once spent, always so.
  bool Spent() {
    spent_ = spent_ || context_.stopped() || (request_.out_of_time && request_.out_of_time());
    return spent_;
  }

  // Until every row is done or the budget is spent.
  absl::Status RefineRows() {
    const bool narrow = !Sweeps();
    const int64_t entries = layer_.cols * (narrow ? 1 + groups_.group_cols / 2 : 4);
    std::vector<int> active = {static_cast<int>(layer_.rows)};
    while (active[0] > 0 && !Spent()) {
      const int steps = StepsOf(launches_++, active[0], entries);
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          cudaMemsetAsync(active_.data(), 0, sizeof(int), context_.stream()));
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          narrow ? LaunchSwapGroups(State(), steps, active_.data(), context_.stream())
                 : LaunchSweepRows(State(), steps, active_.data(), context_.stream()));
      SPARSEFW_RETURN_IF_ERROR(Download(active_.data(), active));
    }
    return absl::OkStatus();
  }

  // Until no exchange between rows lowers the loss or the budget is spent;
  // whether there were any. A round waits for the device once, and copies the terms of
  // the rows that it changed.
  absl::StatusOr<bool> ExchangeBetweenRows() {
    const int64_t before = swaps_;
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchRowTerms(State(), terms_.data(), context_.stream()));
    std::vector<RowTerms> terms(static_cast<size_t>(layer_.rows));
    SPARSEFW_RETURN_IF_ERROR(Download(terms_.data(), terms));
    for (int64_t row = 0; row < layer_.rows; ++row) {
      matching_->SetTerms(row, terms[static_cast<size_t>(row)]);
    }
    std::vector<RowMove> moves;
    while (!Spent()) {
      moves.clear();
      for (const RowMatch& match : matching_->Match()) {
        const RowTerms& p = matching_->terms(match.p_row);
        const RowTerms& q = matching_->terms(match.q_row);
        moves.push_back({match.p_row, p.out_col});
        moves.push_back({match.q_row, q.in_col});
        loss_change_ += p.out + q.in;
        ++swaps_;
      }
      if (moves.empty()) break;
      SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(moves_.data(), moves.data(), std::ssize(moves),
                                           cudaMemcpyHostToDevice, context_.stream()));
      SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchRowMoves(State(), moves_.data(),
                                                   static_cast<int64_t>(moves.size()),
                                                   terms_.data(), context_.stream()));
      terms.resize(moves.size());
      SPARSEFW_RETURN_IF_ERROR(Download(terms_.data(), terms));
      for (size_t i = 0; i < moves.size(); ++i) matching_->SetTerms(moves[i].row, terms[i]);
    }
    return swaps_ > before;
  }

  // Waits for the stream.
  template <typename T>
  absl::Status Download(const T* from, std::vector<T>& to) {
    return CopyAndWait(to.data(), from, std::ssize(to), cudaMemcpyDeviceToHost, context_.stream());
  }

  const DeviceLayer<Real>& layer_;
  const RefineRequest& request_;
  const ExecutionContext& context_;
  Groups groups_;
  DeviceBuffer<double> diagonal_;
  DeviceBuffer<double> reach_;
  DeviceBuffer<double> tolerance_;
  DeviceBuffer<double> product_;
  DeviceBuffer<BitWord> locked_;  // empty unless fixed weights are kept
  DeviceBuffer<BitWord> kept_;
  DeviceBuffer<int32_t> order_;    // as `scratch_`:
  DeviceBuffer<int32_t> scratch_;  // empty where groups are narrow
  DeviceBuffer<RowProgress> progress_;
  DeviceBuffer<int> active_;  // rows that are not done
  DeviceBuffer<RowTerms> terms_;
  DeviceBuffer<RowMove> moves_;
  std::optional<RowMatching> matching_;  // where the whole matrix is one group
  size_t shared_bytes_ = 0;
  int launches_ = 0;
  int64_t swaps_ = 0;  // between rows; Result adds those within
  double loss_change_ = 0;
  bool spent_ = false;
};

}  // namespace

template <typename Real>
absl::StatusOr<RefinedMask> RefineMask(const EngineProblem& problem, const DeviceLayer<Real>& layer,
                                       const Scale& scale, const Mask& start,
                                       const RefineRequest& request,
                                       const ExecutionContext& context) {
  if (context.stopped()) return RefinedMask{.mask = start};
  SwapRefinement<Real> refinement(layer, request, context);
  const absl::Status loaded = refinement.Load(problem, start);
  if (absl::IsCancelled(loaded)) return RefinedMask{.mask = start};
  SPARSEFW_RETURN_IF_ERROR(loaded);
  SPARSEFW_RETURN_IF_ERROR(refinement.Run());
  return refinement.Result(scale);
}

template <typename Real>
int64_t RefineBytes(int64_t rows, int64_t cols) {
  const int64_t stride = StrideOf(cols);
  const int64_t bits = 2 * rows * stride / 8;
  const int64_t of_rows =
      rows * int64_t{8 + sizeof(RowProgress) + sizeof(RowTerms) + sizeof(RowMove)};
  return (8 + 2 * 4) * rows * stride + bits + of_rows + 2 * 8 * stride + int64_t{sizeof(int)} +
         Float64ProductBytes<Real>(rows, cols);
}

template int64_t RefineBytes<float>(int64_t, int64_t);
template int64_t RefineBytes<double>(int64_t, int64_t);
template absl::StatusOr<RefinedMask> RefineMask(const EngineProblem&, const DeviceLayer<float>&,
                                                const Scale&, const Mask&, const RefineRequest&,
                                                const ExecutionContext&);
template absl::StatusOr<RefinedMask> RefineMask(const EngineProblem&, const DeviceLayer<double>&,
                                                const Scale&, const Mask&, const RefineRequest&,
                                                const ExecutionContext&);

}  // namespace sparsefw::cuda
