#include "core/src/cpu/swaps/swap_refine.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/src/cpu/linalg/float64_product.h"
#include "core/src/cpu/swaps/swap_between_rows.h"
#include "core/src/cpu/swaps/swap_row.h"
#include "core/src/cpu/swaps/swap_state.h"
#include "core/src/frank_wolfe/swap_tolerance.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kRowsOfTask = 4;

Mask MaskOf(const BitRows& bits, int64_t rows, int64_t cols) {
  Mask mask(rows, cols);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) mask.Set(row, col, bits.Get(row, col));
  }
  return mask;
}

// max_j |G_pj| / sqrt(G_jj) over j != p.
template <typename Real>
double ReachOf(const SwapState<Real>& state, int64_t p) {
  double reach = 0;
  for (int64_t j = 0; j < state.layer.cols; ++j) {
    const double entry = std::abs(static_cast<double>(state.layer.gram(p, j)));
    if (j != p && entry > 0) reach = std::max(reach, entry / std::sqrt(state.diagonal(0, j)));
  }
  return reach;
}

template <typename Real>
absl::Status FillDiagonalAndReach(SwapState<Real>& state, const ParallelContext& context) {
  const int64_t cols = state.layer.cols;
  state.diagonal = Matrix<double>(1, state.layer.stride());
  for (int64_t j = 0; j < cols; ++j) {
    state.diagonal(0, j) = static_cast<double>(state.layer.gram(j, j));
  }
  state.reach.resize(static_cast<size_t>(cols));
  return context.ForEachRow(
      {cols, 16}, [&](int64_t p) { state.reach[static_cast<size_t>(p)] = ReachOf(state, p); });
}

template <typename Real>
double ToleranceOf(const SwapState<Real>& state, int64_t row) {
  double loss = 0;
  double squares = 0;
  for (int64_t col = 0; col < state.layer.cols; ++col) {
    const double weight = state.Weight(row, col);
    squares += weight * weight * state.diagonal(0, col);
    if (!state.kept.Get(row, col)) loss += weight * state.product(row, col);
  }
  return kSwapTolerance * std::max(0.0, loss) + kSwapNoise * squares;
}

template <typename Real>
absl::StatusOr<SwapState<Real>> LoadState(const EngineProblem& problem, const Scale& scale,
                                          const Mask& start, bool keep_fixed,
                                          const ParallelContext& context) {
  SwapState<Real> state;
  SPARSEFW_ASSIGN_OR_RETURN(state.layer,
                            LoadScaled<Real>(problem.weights, problem.gram, scale, context));
  const int64_t rows = state.layer.rows;
  const int64_t cols = state.layer.cols;
  state.groups = GroupsOf(problem.pattern, rows, cols);
  state.columns.assign(static_cast<size_t>(state.layer.words), 0);
  for (int64_t col = 0; col < cols; ++col) SetBit(state.columns.data(), col);
  state.kept = BitRows(start);
  state.locked = keep_fixed ? BitRows(*problem.fixed) : BitRows(rows, cols);
  SPARSEFW_RETURN_IF_ERROR(FillDiagonalAndReach(state, context));

  state.product = Matrix<double>(rows, state.layer.stride());
  const auto fill = [&](int64_t row, int64_t first, int64_t count, double* out) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = state.kept.Get(row, first + i) ? 0 : state.Weight(row, first + i);
    }
  };
  SPARSEFW_RETURN_IF_ERROR(Float64Product(state.layer, fill, state.product, context));
  state.tolerance.resize(static_cast<size_t>(rows));
  SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({rows, kRowsOfTask}, [&](int64_t row) {
    state.tolerance[static_cast<size_t>(row)] = ToleranceOf(state, row);
  }));
  return state;
}

// Refines the rows that are marked in `changed`, and unmarks them.
template <typename Real>
SwapTally RefineRows(SwapState<Real>& state, std::vector<uint8_t>& changed, SwapBudget& budget,
                     const ParallelContext& context) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < state.layer.rows; ++row) {
    if (std::exchange(changed[static_cast<size_t>(row)], uint8_t{0}) != 0) rows.push_back(row);
  }
  std::vector<SwapTally> tallies(rows.size());
  const RowBlocks blocks{std::ssize(rows), kRowsOfTask};
  // Cancelled is no error here: the budget is spent then.
  context
      .ForEach(blocks.count(),
               [&](int64_t block) {
                 RowSwapper<Real> swapper(state, budget);
                 for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
                   const auto index = static_cast<size_t>(i);
                   tallies[index] = swapper.Refine(rows[index]);
                 }
               })
      .IgnoreError();
  SwapTally sum;  // in the order of the rows
  for (const SwapTally& tally : tallies) {
    sum.swaps += tally.swaps;
    sum.loss_change += tally.loss_change;
  }
  return sum;
}

template <typename Real>
SwapTally RefineAll(SwapState<Real>& state, SwapBudget& budget, const ParallelContext& context) {
  std::vector<uint8_t> changed(static_cast<size_t>(state.layer.rows), 1);
  SwapTally total;
  const auto add = [&total](const SwapTally& tally) {
    total.swaps += tally.swaps;
    total.loss_change += tally.loss_change;
    return tally.swaps > 0;
  };
  if (!state.groups.whole_matrix) {
    add(RefineRows(state, changed, budget, context));
    return total;
  }
  // Exchanges between rows first: they are cheap, and move weights to where
  // rows need them before rows are looked at pair by pair.
  BetweenRows<Real> between(state, budget);
  bool first = true;
  while (!budget.Spent() && between.Update(context).ok()) {
    const bool exchanged = add(between.Exchange(changed));
    if (!exchanged && !first) break;
    add(RefineRows(state, changed, budget, context));
    first = false;
  }
  return total;
}

template <typename Real>
absl::StatusOr<RefinedMask> RefineAs(const EngineProblem& problem, const Scale& scale,
                                     const Mask& start, const RefineRequest& request,
                                     const ParallelContext& context) {
  SwapBudget budget(context, request.out_of_time);
  absl::StatusOr<SwapState<Real>> state =
      LoadState<Real>(problem, scale, start, request.keep_fixed, context);
  if (absl::IsCancelled(state.status())) return RefinedMask{.mask = start};
  SPARSEFW_RETURN_IF_ERROR(state.status());
  const SwapTally tally = RefineAll(*state, budget, context);
  return RefinedMask{.mask = MaskOf(state->kept, start.rows(), start.cols()),
                     .swaps = tally.swaps,
                     .loss_change = scale.Unscaled(tally.loss_change),
                     .converged = !budget.Spent()};
}

}  // namespace

absl::StatusOr<RefinedMask> RefineMask(Precision precision, const EngineProblem& problem,
                                       const Scale& scale, const Mask& start,
                                       const RefineRequest& request,
                                       const ParallelContext& context) {
  return precision == Precision::kFloat64
             ? RefineAs<double>(problem, scale, start, request, context)
             : RefineAs<float>(problem, scale, start, request, context);
}

int64_t SwapRefineBytes(int64_t rows, int64_t cols, int64_t size) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t layer = size * (rows + cols) * stride;
  const int64_t bits = 2 * rows * stride / 8;
  // A row has a tolerance, a tally and best terms; a column a diagonal and its reach.
  return layer + 8 * rows * stride + bits + 128 * (rows + cols) + Float64ProductBytes(rows, cols);
}

}  // namespace sparsefw::cpu
