// Turns the inputs into a loaded engine and the first mask with its loss.
#include <cmath>
#include <optional>

#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/solve_state.h"
#include "sparsefw/reason.h"
#include "sparsefw/saliency.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

SaliencyOptions SaliencyOf(const SolveOptions& options) {
  SaliencyOptions saliency = options.warm_start;
  if (options.method == Method::kMagnitude) saliency.method = SaliencyMethod::kMagnitude;
  if (options.method == Method::kWanda) saliency.method = SaliencyMethod::kWanda;
  if (options.method == Method::kRia) saliency.method = SaliencyMethod::kRia;
  return saliency;
}

// What the engine is loaded with beside the masks.
struct Start {
  SaliencySource saliency;
  std::optional<StartChoice> choice;  // of an engine that chooses the masks itself
};

// Where the host chooses, it needs the scores as a matrix here only: what rounds later asks for
// single ones.
absl::Status ChooseMasks(SolveState& state, Start& start) {
  const Problem& problem = state.problem;
  const SolveOptions& options = state.options;
  const bool one_shot = state.one_shot();
  const bool given = !one_shot && !problem.saliency.empty();
  if (given) {
    start.saliency = problem.saliency;
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(
        start.saliency,
        MakeSaliencySource(problem.weights, DiagonalOf(problem.gram), SaliencyOf(options)));
  }
  const bool warm_is_given = !one_shot && problem.warm_mask != nullptr;
  if (warm_is_given) state.warm = *problem.warm_mask;
  // No entry is free to move without iteration and swaps.
  const bool fix_all = one_shot && !options.swaps;
  if (!given && state.given.backend.chooses_start()) {
    start.choice = {&state.warm, &state.fixed, warm_is_given, fix_all, options.alpha};
    return absl::OkStatus();
  }
  const Matrix<float> own = given ? Matrix<float>() : ScoresOf(start.saliency);
  const ConstMatrixView scores = given ? problem.saliency : own.view();
  if (!warm_is_given) {
    SPARSEFW_ASSIGN_OR_RETURN(state.warm, TopScores(scores, problem.pattern));
  }
  if (fix_all) {
    state.fixed = state.warm;
    return absl::OkStatus();
  }
  SPARSEFW_ASSIGN_OR_RETURN(state.fixed,
                            FixedSet(scores, state.warm, problem.pattern, options.alpha));
  return absl::OkStatus();
}

absl::Status LoadEngine(SolveState& state, const Start& start) {
  LayerCache& cache = state.given.cache;
  if (cache.engine == nullptr) {
    const EngineOptions options = {.threads = state.options.threads,
                                   .stop = state.given.stop,
                                   .product_precision = state.options.product_precision};
    SPARSEFW_ASSIGN_OR_RETURN(cache.engine, state.given.backend.CreateEngine(options));
  }
  state.engine = cache.engine.get();
  return state.engine->Load({.weights = state.problem.weights,
                             .gram = state.problem.gram,
                             .pattern = state.problem.pattern,
                             .saliency = start.saliency,
                             .warm = &state.warm,
                             .fixed = &state.fixed,
                             .choice = start.choice ? &*start.choice : nullptr,
                             .reused = cache.reused,
                             .device_gram = state.problem.device_gram,
                             .shrinkage = state.engine_shrinkage()});
}

// The warm start is the first mask there is.
absl::Status EvaluateStart(SolveState& state) {
  LayerCache& cache = state.given.cache;
  SolveResult& result = state.result;
  const Mask& warm = state.warm;
  if (!cache.full_loss) {
    SPARSEFW_ASSIGN_OR_RETURN(cache.full_loss, TimedLoss(state, Mask(warm.rows(), warm.cols())));
  }
  result.full_loss = *cache.full_loss;
  if (!std::isfinite(result.full_loss)) {
    return Invalid("NON_FINITE",
                   "the loss of pruning everything overflows float64; scale weights or gram down");
  }
  SPARSEFW_RETURN_IF_ERROR(state.limits.CheckBeforeMask());
  if (cache.warm != warm) {
    SPARSEFW_ASSIGN_OR_RETURN(cache.warm_loss, TimedLoss(state, warm));
    cache.warm = warm;
  }
  result.warm_start_loss = result.final_loss = result.rounded_loss = cache.warm_loss;
  result.relaxed_loss = state.stats.relaxed_loss = cache.warm_loss;  // the warm start is M_0
  result.mask = state.last_tried = warm;
  return absl::OkStatus();
}

}  // namespace

absl::Status FindWarmStart(SolveState& state) {
  SPARSEFW_RETURN_IF_ERROR(ValidateOptions(state.options));
  const Limits& limits = state.limits;
  Start start;
  const ParallelContext parallel(state.options.threads, state.given.stop);
  const absl::Status chosen = parallel.Run([&] {
    SPARSEFW_RETURN_IF_ERROR(ValidateProblem(state.problem));
    SPARSEFW_RETURN_IF_ERROR(limits.CheckBeforeMask());
    if (state.engine_shrinkage() == 0) {
      SPARSEFW_ASSIGN_OR_RETURN(state.problem, ShrunkProblem(state, parallel));
    }
    return ChooseMasks(state, start);
  });
  SPARSEFW_RETURN_IF_ERROR(chosen);
  SPARSEFW_RETURN_IF_ERROR(limits.CheckBeforeMask());
  SPARSEFW_RETURN_IF_ERROR(LoadEngine(state, start));
  SPARSEFW_RETURN_IF_ERROR(limits.CheckBeforeMask());
  state.result.load_time = limits.Elapsed();
  return EvaluateStart(state);
}

}  // namespace sparsefw
