#include "core/src/cuda/swaps/swap_refine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/memory/device_arrays.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "core/src/cuda/swaps/swap_kernels.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

// A launch takes one step at first, so that small layers look at the clock as well, and then as
// many as together read this many entries: some 30 ms, if all rows take all of them.
constexpr int kShortLaunches = 8;
constexpr int64_t kEntriesOfLaunch = int64_t{1} << 32;
constexpr int64_t kEntriesOfRow = int64_t{1} << 25;

// Rounds of exchanges between rows are enqueued one, two, four, ... and so many at a time: about a
// millisecond of them. Those after the last exchange do nothing.
constexpr int kMostRounds = 32;

int StepsOf(int launch, int64_t rows, int64_t entries_of_step) {
  if (launch < kShortLaunches) return 1;
  const int64_t steps = std::min(kEntriesOfLaunch / rows, kEntriesOfRow) / entries_of_step;
  return static_cast<int>(std::clamp<int64_t>(steps, 1, 1 << 20));
}

// Device memory of a refinement, but for the masks.
template <typename Real>
struct SwapMemory {
  SwapState<Real> state;
  int* active = nullptr;      // rows that are not done
  RowTerms* terms = nullptr;  // [rows]
  RowMove* moves = nullptr;   // [kMostMoves]
  RowExchanges* exchanges = nullptr;
};

bool Sweeps(int64_t group_cols) { return group_cols > kNarrowGroup; }

// What belongs to the sizes in `memory.state`.
template <typename Real>
void LayOut(SwapMemory<Real>& memory, DeviceArrays& arrays) {
  SwapState<Real>& state = memory.state;
  const int64_t size = state.rows * state.stride;
  const int64_t listed = Sweeps(state.group_cols) ? size : 0;
  arrays.Add(state.stride, state.diagonal);
  arrays.Add(state.stride, state.reach);
  arrays.Add(state.rows, state.tolerance);
  arrays.Add(size, state.product);
  arrays.Add(listed, state.order);
  arrays.Add(listed, state.scratch);
  arrays.AddZeroed(state.rows, state.progress);
  arrays.Add(1, memory.active);
  arrays.Add(state.rows, memory.terms);
  arrays.Add(kMostMoves, memory.moves);
  arrays.AddZeroed(1, memory.exchanges);
}

template <typename Real>
class SwapRefinement {
 public:
  SwapRefinement(const DeviceLayer<Real>& layer, const RefineRequest& request,
                 const ExecutionContext& context)
      : layer_(layer), request_(request), context_(context), arrays_(context.stream()) {}
  SwapRefinement(const SwapRefinement&) = delete;  // it refers to its own members

  // Errors: Cancelled
  absl::Status Load(const EngineProblem& problem, const Mask& start) {
    const Groups groups = GroupsOf(problem.pattern, layer_.rows, layer_.cols);
    SPARSEFW_ASSIGN_OR_RETURN(kept_, UploadMask(start, context_.stream()));
    if (request_.keep_fixed) {
      SPARSEFW_ASSIGN_OR_RETURN(locked_, UploadMask(*problem.fixed, context_.stream()));
    }
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t most, MostSharedBytes());
    state_ = {.rows = layer_.rows,
              .cols = layer_.cols,
              .stride = layer_.stride,
              .group_cols = groups.group_cols,
              .weights = layer_.weights.data(),
              .gram = layer_.gram.data(),
              .locked = locked_.data(),
              .kept = kept_.data(),
              .shared_bytes = SharedProductBytes(layer_.stride, static_cast<size_t>(most))};
    LayOut(memory_, arrays_);
    SPARSEFW_RETURN_IF_ERROR(arrays_.status());
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchDiagonal(state_, context_.stream()));
    const RawRows pruned = {
        .weights = {layer_.weights.data(), DTypeOf<Real>(), layer_.rows, layer_.cols},
        .stride = layer_.stride,
        .kept = kept_.data()};
    SPARSEFW_RETURN_IF_ERROR(Float64Product(layer_, pruned, state_.product, context_));
    whole_matrix_ = groups.whole_matrix;
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchTolerance(state_, context_.stream()));
    return absl::OkStatus();
  }

  absl::Status Run() {
    if (!whole_matrix_) return RefineRows();
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
    SPARSEFW_RETURN_IF_ERROR(CopyAndWait(progress.data(), state_.progress, layer_.rows,
                                         cudaMemcpyDeviceToHost, context_.stream()));
    int64_t swaps = exchanges_.swaps;
    double loss_change = exchanges_.loss_change;
    for (const RowProgress& row : progress) {
      swaps += row.swaps;
      loss_change += row.loss_change;
    }
    SPARSEFW_ASSIGN_OR_RETURN(
        Mask mask, DownloadMask(kept_.data(), layer_.rows, layer_.cols, context_.stream()));
    return RefinedMask{.mask = std::move(mask),
                       .swaps = swaps,
                       .loss_change = scale.Unscaled(loss_change),
                       .converged = !spent_};
  }

 private:
  // Once spent, always so.
  bool Spent() {
    spent_ = spent_ || context_.stopped() || (request_.out_of_time && request_.out_of_time());
    return spent_;
  }

  // Until every row is done or the budget is spent.
  absl::Status RefineRows() {
    const bool narrow = !Sweeps(state_.group_cols);
    const int64_t entries = layer_.cols * (narrow ? 1 + state_.group_cols / 2 : 4);
    int active = static_cast<int>(layer_.rows);
    while (active > 0 && !Spent()) {
      const int steps = StepsOf(launches_++, active, entries);
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          cudaMemsetAsync(memory_.active, 0, sizeof(int), context_.stream()));
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          narrow ? LaunchSwapGroups(state_, steps, memory_.active, context_.stream())
                 : LaunchSweepRows(state_, steps, memory_.active, context_.stream()));
      SPARSEFW_RETURN_IF_ERROR(
          CopyAndWait(&active, memory_.active, 1, cudaMemcpyDeviceToHost, context_.stream()));
    }
    return absl::OkStatus();
  }

  // Until no exchange between rows lowers the loss or the budget is spent; whether there were any.
  absl::StatusOr<bool> ExchangeBetweenRows() {
    const cudaStream_t stream = context_.stream();
    const int64_t before = exchanges_.swaps;
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchRowTerms(state_, memory_.terms, stream));
    for (int rounds = 1; !Spent(); rounds = std::min(2 * rounds, kMostRounds)) {
      for (int round = 0; round < rounds; ++round) {
        SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchMatchRows(layer_.rows, state_.tolerance, memory_.terms,
                                                      memory_.moves, memory_.exchanges, stream));
        SPARSEFW_CUDA_RETURN_IF_ERROR(
            LaunchRowMoves(state_, memory_.moves, memory_.exchanges, memory_.terms, stream));
      }
      SPARSEFW_RETURN_IF_ERROR(
          CopyAndWait(&exchanges_, memory_.exchanges, 1, cudaMemcpyDeviceToHost, stream));
      if (exchanges_.moves == 0) break;
    }
    return exchanges_.swaps > before;
  }

  const DeviceLayer<Real>& layer_;
  const RefineRequest& request_;
  const ExecutionContext& context_;
  DeviceBuffer<BitWord> locked_;  // empty unless fixed weights are kept
  DeviceBuffer<BitWord> kept_;
  DeviceArrays arrays_;
  SwapMemory<Real> memory_;
  SwapState<Real>& state_ = memory_.state;
  bool whole_matrix_ = false;    // it is one group
  RowExchanges exchanges_ = {};  // as the device's
  int launches_ = 0;
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
  // One group a row; others need no more.
  SwapMemory<Real> memory = {.state = {.rows = rows, .stride = StrideOf(cols), .group_cols = cols}};
  DeviceArrays arrays;
  LayOut(memory, arrays);
  const int64_t bits = 2 * rows * StrideOf(cols) / 8;
  return arrays.bytes() + bits + Float64ProductBytes<Real>(rows, cols);
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
