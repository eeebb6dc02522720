#include "core/src/cpu/iteration/frank_wolfe.h"

#include <algorithm>
#include <utility>

#include "core/src/cpu/linalg/gram_product.h"
#include "core/src/cpu/screen/independent_steps.h"
#include "core/src/cpu/screen/shared_steps.h"
#include "core/src/cpu/select/rounding.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// Above this share of toggled coordinates a dense product is faster than one
// row of G for each: it runs at nearly four times their rate, for each row of G
// it loads serves several rows (docs/benchmarks/cpu-log.md, section 2).
constexpr double kDenseShare = 1.0 / 4;

BitRows Without(BitRows bits, const BitRows& removed, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < bits.words(); ++word)
      bits.row(row)[word] &= ~removed.row(row)[word];
  }
  return bits;
}

template <typename Real>
Iterate<Real> MakeIterate(std::shared_ptr<const PanelLayer<Real>> layer, const StartPoint& start) {
  Iterate<Real> it;
  const int64_t rows = layer->rows;
  const int64_t cols = layer->cols;
  it.layer = std::move(layer);
  it.groups = GroupsOf(start.pattern, rows, cols);
  it.blocks = BlocksOf(rows, it.layer->stride());
  it.free = it.groups.total_kept - start.fixed.CountKept();
  it.fixed = BitRows(start.fixed);
  // V_{-1} := M_0 works since M_0 is itself a vertex; then U_{-1} = E_0.
  it.previous = Without(BitRows(start.warm), it.fixed, rows);
  it.vertex = BitRows(rows, cols);
  it.product = Matrix<Real>(rows, it.layer->stride());
  it.vertex_product = Matrix<Real>(rows, it.layer->stride());
  return it;
}

// `rows`: null where one budget serves the matrix.
template <typename Real>
std::unique_ptr<ScreenedSteps<Real>> MakeScreenedSteps(ScreenedEpoch<Real>& epoch,
                                                       RowSelector<Real>* rows,
                                                       const ParallelContext& context) {
  if (rows == nullptr) return std::make_unique<SharedSteps<Real>>(epoch, context);
  return std::make_unique<IndependentSteps<Real>>(epoch, *rows, context);
}

}  // namespace

template <typename Real>
FrankWolfe<Real>::FrankWolfe(std::shared_ptr<const PanelLayer<Real>> layer, const StartPoint& start,
                             const ParallelContext& context)
    : context_(context),
      iterate_(MakeIterate(std::move(layer), start)),
      relaxed_(iterate_.previous, iterate_.layer->rows, iterate_.layer->cols),
      update_(iterate_, relaxed_, context),
      selector_(MakeVertexSelector(iterate_, context)),
      screen_(start.screening == Screening::kNever
                  ? nullptr
                  : std::make_unique<ScreenedEpoch<Real>>(iterate_, relaxed_, start.screening,
                                                          context)),
      screened_(screen_ == nullptr ? nullptr
                                   : MakeScreenedSteps(*screen_, selector_->rows(), context)) {}

template <typename Real>
absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<SaliencySource>>> FrankWolfe<Real>::Start(
    std::shared_ptr<const PanelLayer<Real>> layer, const StartPoint& start,
    const ParallelContext& context) {
  std::unique_ptr<FrankWolfe> result(new FrankWolfe(std::move(layer), start, context));
  SPARSEFW_RETURN_IF_ERROR(result->Initialise());
  return result;
}

template <typename Real>
absl::Status FrankWolfe<Real>::Initialise() {
  Iterate<Real>& it = iterate_;
  SPARSEFW_RETURN_IF_ERROR(RecomputeVertexProduct());
  SPARSEFW_RETURN_IF_ERROR(context_.ForEachRow(it.blocks, [&](int64_t row) {
    std::copy_n(it.vertex_product.row(row), it.layer->stride(), it.product.row(row));
  }));
  at_.relaxed_loss = at_.vertex_loss;
  return Scan(0);
}

template <typename Real>
absl::StatusOr<StepStats> FrankWolfe<Real>::Step(const StepRequest& request) {
  if (unfinished_) return absl::CancelledError("the engine was stopped in the middle of a step");
  if (context_.stopped()) return absl::CancelledError("the engine was told to stop");
  unfinished_ = true;
  SPARSEFW_RETURN_IF_ERROR(StepBy(request));
  unfinished_ = false;
  if (request.measure_drift) {
    // The product needs memory, and what comes after it is the end.
    if (screened_ != nullptr) screened_->Forget();
    SPARSEFW_RETURN_IF_ERROR(CompareWithDense(0, false));
  }
  StepStats stats = {.iteration = at_.iteration,
                     .relaxed_loss = at_.relaxed_loss,
                     .gap = at_.gap,
                     .step_size = at_.step_size,
                     .lower_bound = at_.lower_bound,
                     .toggled = toggled_,
                     .reached_gap = reached_gap_,
                     .drift = at_.iteration - compared_at_ < kRefreshPeriod ? drift_ : 0};
  if (screen_ != nullptr) stats.engine.screening = screen_->CountsAt(at_.iteration);
  return stats;
}

template <typename Real>
absl::Status FrankWolfe<Real>::StepBy(const StepRequest& request) {
  for (int64_t left = request.count; left > 0 && !ReachedGap(at_, request.rel_gap);) {
    if (Stationary(request.rule)) {
      at_.iteration += left - 1;
      at_.step_size = StepSize(request.rule);
      ++at_.iteration;
      break;
    }
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t screened, ScreenedStepsFrom(request, left));
    if (screened > 0) {
      const int64_t before = at_.iteration;
      SPARSEFW_RETURN_IF_ERROR(AdvanceScreened(request, screened));
      left -= at_.iteration - before;
      continue;
    }
    SPARSEFW_RETURN_IF_ERROR(Advance(request.rule));
    --left;
  }
  reached_gap_ = ReachedGap(at_, request.rel_gap);
  return screen_ != nullptr && screen_->running() ? screen_->StoreMasks() : absl::OkStatus();
}

template <typename Real>
absl::StatusOr<RoundedMask> FrankWolfe<Real>::Round(const SaliencySource& saliency) {
  return Rounding<Real>(iterate_, relaxed_, saliency, context_).Run();
}

// No step can move the iterate any more, so none needs to be computed.
template <typename Real>
bool FrankWolfe<Real>::Stationary(StepRule rule) const {
  return iterate_.free == 0 || (rule == StepRule::kLineSearch && at_.gap == 0);
}

template <typename Real>
double FrankWolfe<Real>::StepSize(StepRule rule) const {
  return ChooseStep<Real>(at_, rule == StepRule::kLineSearch);
}

template <typename Real>
absl::Status FrankWolfe<Real>::Advance(StepRule rule) {
  const bool refresh = ComputesProductAnew();
  const bool anew = ComputesVertexProductAnew();
  fresh_ = refresh;
  // The older vertex product carries rounding from before the refresh.
  if (anew) iterate_.older.Forget();
  SPARSEFW_ASSIGN_OR_RETURN(const VertexDistance distance, update_.CountToggles());
  const auto weights = static_cast<double>(iterate_.layer->rows * iterate_.layer->cols);
  const bool dense = anew || static_cast<double>(distance.terms) > kDenseShare * weights;
  if (!dense && !refresh && rule == StepRule::kOpenLoop) {
    SPARSEFW_RETURN_IF_ERROR(ApplyAndScan(StepSize(rule)));
  } else {
    if (dense) {
      if (!anew && !refresh) iterate_.TrackOlder();
      SPARSEFW_RETURN_IF_ERROR(update_.Toggle());
      SPARSEFW_RETURN_IF_ERROR(RecomputeVertexProduct());
    } else {
      SPARSEFW_ASSIGN_OR_RETURN(const double change, update_.Apply([](int64_t) {}, refresh));
      at_.vertex_loss += change;
    }
    const double step_size = StepSize(rule);
    TakeStep(at_, step_size);
    SPARSEFW_RETURN_IF_ERROR(AdvanceRelaxed(step_size));
    if (refresh) SPARSEFW_RETURN_IF_ERROR(CompareWithDense(step_size, true));
    SPARSEFW_RETURN_IF_ERROR(Scan(refresh ? 0 : step_size));
  }
  toggled_ += distance.toggled;
  rounded_ = anew ? 0 : rounded_ + 1;
  return absl::OkStatus();
}

// Open loop only: the step size is known before U_t is, so that a block's rows
// are moved and scanned while they are in the cache.
template <typename Real>
absl::Status FrankWolfe<Real>::ApplyAndScan(double step_size) {
  SPARSEFW_ASSIGN_OR_RETURN(const double change, update_.Apply([&](int64_t block) {
    AdvanceRelaxed(block, step_size);
    selector_->Scan(block, static_cast<Real>(step_size));
  }));
  at_.vertex_loss += change;
  TakeStep(at_, step_size);
  SPARSEFW_ASSIGN_OR_RETURN(const double vertex_inner, selector_->Finish());
  EvaluateVertex(at_, vertex_inner);
  return absl::OkStatus();
}

template <typename Real>
absl::Status FrankWolfe<Real>::Scan(double step_size) {
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    selector_->Scan(block, static_cast<Real>(step_size));
  }));
  SPARSEFW_ASSIGN_OR_RETURN(const double vertex_inner, selector_->Finish());
  EvaluateVertex(at_, vertex_inner);
  return absl::OkStatus();
}

// M_t -> M_{t+1}.
template <typename Real>
absl::Status FrankWolfe<Real>::AdvanceRelaxed(double step_size) {
  return context_.ForEach(iterate_.blocks.count(),
                          [&](int64_t block) { AdvanceRelaxed(block, step_size); });
}

template <typename Real>
void FrankWolfe<Real>::AdvanceRelaxed(int64_t block, double step_size) {
  for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
    relaxed_.Advance(step_size, row, iterate_.previous.row(row));
  }
}

int64_t FrankWolfeBytes(int64_t rows, int64_t cols, int threads, int64_t size) {
  const int64_t words = (cols + 63) / 64;
  const int64_t weights = size * rows * words * 64;
  const int64_t gram = size * cols * words * 64;
  const int64_t relaxed = size * rows * cols;
  const int64_t bits = 3 * 8 * rows * words;
  // Candidates of the selection: an eighth of the weights at most, each with
  // its score, row and column, in vectors that may have doubled, and one copy.
  const int64_t candidates = (size + 8) * (rows * words * 64 / 8) * 3;
  const int64_t older = weights + 8 * rows * (words + 1);
  // W is counted though the caller's may do: that depends on its values.
  // None of these are held at the same time.
  const int64_t gathered = std::min(kGatheredBytes, gram);
  const int64_t row_by_row = kValuesPerWeight * size * rows * cols + threads * gathered;
  const int64_t epoch = std::max(row_by_row, kHalfValuesHeldPerWeight * size / 2 * rows * cols);
  const int64_t whole = std::max(GramProductBytes(rows, cols, threads, size),
                                 candidates + VertexUpdateBytes(rows, cols, size));
  return 3 * weights + gram + relaxed + bits + std::max(epoch, older + whole);
}

template class FrankWolfe<float>;
template class FrankWolfe<double>;

}  // namespace sparsefw::cpu
