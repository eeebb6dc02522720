// Solve: a layer in, the best mask found and what is known about it out.
//
//   warm start -> fixed set -> Frank-Wolfe -> rounding -> best of all seen
//     [-> swap refinement] [-> weight reconstruction | -> joint search]
//
// Source: "Don't Be Greedy, Just Relax! Pruning LLMs via Frank-Wolfe",
// Algorithm 2. Deviations, each argued in docs/numerics.md:
//   (1) the gradient is taken at Mfixed + M_t; read literally, Algorithm 2
//       takes it at M_t and lets fixed weights decay
//   (2) the free capacity is k - |Mfixed|, so exactly k weights are kept; the
//       printed floor(k alpha) + floor(k (1 - alpha)) can lose one
//   (3) the result is the best mask seen, warm start included: a job never
//       returns a larger loss than its warm start
//   (4) an exact line search is offered beside the paper's step
//
// One-shot methods (magnitude, Wanda, RIA) stop at the warm start. SparseGPT and ALPS
// are other solvers behind the same call: sparsefw/sparsegpt.h, sparsefw/alps.h. They have
// no mask before they end, so a stop or a deadline before that is an error, and report
// no progress.
#ifndef SPARSEFW_SOLVER_H_
#define SPARSEFW_SOLVER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sparsefw/backend.h"
#include "sparsefw/checkpoint.h"
#include "sparsefw/joint.h"
#include "sparsefw/mask.h"
#include "sparsefw/problem.h"
#include "sparsefw/saliency.h"
#include "sparsefw/sparsegpt.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw {

enum class Method { kMagnitude, kWanda, kRia, kSparseGpt, kSparseFw, kAlps };
// As metrics, logs and messages print the values of an enum, here and in the other headers; "other"
// for a number that is none of them.
std::string_view NameOf(Method method);  // "sparsefw"

// Whether it finds weights together with its mask: on the engine where Backend::CheckPrune allows
// it, else on the CPU.
constexpr bool HasOwnWeights(Method method) {
  return method == Method::kSparseGpt || method == Method::kAlps;
}

struct SolveOptions {
  Method method = Method::kSparseFw;
  // Warm start of kSparseFw; ignored where the problem brings a saliency or a
  // warm mask. With a warm mask and no saliency, this method scores it. Methods
  // with own weights start from nothing; this is the mask that they are compared with.
  SaliencyOptions warm_start = {};

  // An option of every method, [0, 1): the solve works on H = (1 - shrinkage) G + shrinkage
  // diag(G). Every loss and the certificate are of H, but SolveSummary::unshrunk. G is an estimate
  // from few tokens; shrinking its correlations lets masks and weights fit other inputs better.
  double shrinkage = 0;

  double alpha = 0.9;         // [0, 1]: fraction of the kept weights that is fixed
  int64_t iterations = 2000;  // >= 1
  StepRule step_rule = StepRule::kOpenLoop;
  double rel_gap = 0;          // >= 0: stop when gap <= rel_gap * relaxed loss; 0: never
  int64_t report_every = 100;  // >= 1: iterations between report points

  // An option of every method: the best mask is refined by exchanges of one kept and one pruned
  // weight until none lowers the loss. keep_fixed: the fixed set stays; one-shot methods have one
  // too then, the alpha fraction of their mask, so that alpha = 0.5 leaves the other half to the
  // swaps.
  bool swaps = false;
  bool keep_fixed = true;
  // An option of every method: the kept weights that lose least with the mask found.
  bool reconstruct = false;
  // An option of every method: its mask with the weights solved on it is where the joint search
  // starts; the alpha fraction of its kept weights stays unless keep_fixed is off. The search
  // starts from a few iterations of ALPS where these lose less. Contains the reconstruction: not
  // together with it.
  bool joint = false;
  JointOptions joint_options = {};

  SparseGptOptions sparsegpt = {};  // of kSparseGpt only

  // Also finds SolveSummary::new_weights_loss, at the price of a reconstruction where the
  // result has no new weights.
  bool measure_new_weights = false;

  // When it is near, the best mask so far is the result. The solver reserves
  // the time of one rounding and one loss, measured on this layer. Swaps and
  // reconstruction get what is left, and are left out where that is too little. A time of
  // SteadyNow.
  absl::Time deadline = absl::InfiniteFuture();
  int threads = 0;  // worker threads of the engine; 0: all cores
  ProductPrecision product_precision = ProductPrecision::kFloat32;
};

enum class StopCause { kIterations, kGap, kDeadline, kCancelled };
std::string_view NameOf(StopCause cause);  // "DEADLINE"
enum class CandidateKind { kWarmStart, kRounded, kRefined, kJoint };

// State of a solve at a report point.
struct ProgressReport {
  int64_t iteration = 0;  // Frank-Wolfe steps taken
  int64_t iterations_total = 0;
  double relaxed_loss = 0;        // L(M_t)
  double gap = 0;                 // g_t = <grad L(M_t), M_t - V_t> >= 0
  double step_size = 0;           // eta of the last step
  double threshold_residual = 0;  // ||M_t - round(M_t)||_1 / k
  double rounded_loss = 0;        // L(round(M_t)), float64
  double best_loss = 0;           // of every mask tried so far
  double warm_start_loss = 0;
  double lower_bound = 0;  // the certificate so far
  int64_t swaps = 0;       // taken; above 0 in the last report only
  int sweep_point = 0;     // of SolveSweep: which point is running
  absl::Duration elapsed;
};

// What the joint search did; searched is false where none was asked for or there was no
// time for it.
struct JointSummary {
  bool searched = false;
  // Loss of the mask it started from, with the weights solved on it, in float64 from scratch.
  double start_loss = 0;
  double reduction = 0;  // 1 - reconstructed/start; 0 where both are 0
  int64_t exchanges = 0;
  bool converged = false;  // no exchange of its columns lowers the loss
};

// Losses with G itself, of a solve with a shrinkage, whose others are of H: float64, from those
// (docs/numerics.md, Shrinkage). To compare solves with different shrinkages. After a cancel
// they are as exact as the losses of H.
struct UnshrunkLosses {
  double full = 0;        // of pruning everything
  double warm_start = 0;  // of its mask
  double result = 0;      // of the weights where there are any, else of the mask
};

// Numbers of a finished solve, without the matrices. With a shrinkage losses are of H.
struct SolveSummary {
  int64_t kept_count = 0;
  double full_loss = 0;        // ||WX||^2: the loss of pruning everything
  double warm_start_loss = 0;  // of methods with own weights, what they are compared with
  double relaxed_loss = 0;     // L(M_T); of one-shot methods the loss of their mask
  double rounded_loss = 0;     // L(round(M_T)); likewise; both before any swap
  // L(mask): float64 reductions of the inputs (Engine::Loss, LossNear). Only where the
  // swaps were cancelled it is the loss they started from and the float64 sum of what they
  // changed.
  double final_loss = 0;
  // ||WX - weights X||^2: float64, from scratch; 0 where there are no new weights. Only
  // where the joint search was cancelled it can be an upper estimate, for the weights before they
  // are rounded to their dtype.
  double reconstructed_loss = 0;
  std::optional<UnshrunkLosses> unshrunk;  // only where there is a shrinkage
  double damping = 0;                      // of methods with own weights: the one that was enough
  JointSummary joint = {};
  // Result of measure_new_weights: the loss with the new weights, or, where the result has none,
  // with weights solved on its mask. Empty where there was no time.
  std::optional<double> new_weights_loss;
  // max_t (L(M_t) - g_t), at least 0: no mask that keeps the fixed set has a
  // smaller loss. One-shot methods take no step and report 0, which always
  // holds; so does a result whose swaps removed fixed weights.
  double lower_bound = 0;
  // 1 - final/warm_start; 0 where both are 0. Methods with own weights and the joint
  // search have 1 - reconstructed/warm_start, which is negative where they do worse.
  double relative_reduction = 0;
  int64_t iterations = 0;
  int64_t swaps = 0;  // between the best mask before them and `mask`
  // Largest relative difference seen between the incremental products and newly
  // computed ones; StepStats::drift. 0 where nothing was iterated.
  double drift = 0;
  StopCause stop_cause = StopCause::kIterations;
  CandidateKind candidate = CandidateKind::kWarmStart;  // of kSparseFw
  absl::Duration load_time;                             // validation, conversion, warm start
  absl::Duration solve_time;                            // everything after it
  ScreeningCounts screening = {};                       // of kSparseFw
};

struct SolveResult : SolveSummary {
  Mask mask;
  // New weights [d_out, d_in] to use instead of mask.W: values of the dtype of
  // W, 0 where the mask is 0. Empty where the result is a mask alone: nothing
  // else was asked for, or a deadline or a cancel left no time for it.
  Matrix<float> weights;
};

// Called on the thread that called Solve; must not block for long.
class SolveObserver {
 public:
  virtual ~SolveObserver() = default;
  virtual void OnReport(const ProgressReport& report) = 0;
};

// The gap at which StepRule::kAuto stops.
inline constexpr double kAutoRelGap = 2e-3;

// The options that Solve runs with: StepRule::kAuto becomes line search, which stops at
// kAutoRelGap where no other rel_gap is given (docs/adr/0027-step-rule-auto.md).
SolveOptions WithStepRule(SolveOptions options);

// Errors:  InvalidArgument  options out of range (OPTION_INVALID)
absl::Status ValidateOptions(const SolveOptions& options);

// Shapes, dtypes: Problem. observer may be null; stop may be null.
// Numeric: warm-start, rounded and final losses are computed from W, G and the mask
//          with float64 accumulation, never taken from the iteration's recurrences; a rounded
//          mask's from scratch or by its difference from the last one's (docs/numerics.md).
//          The same input gives the same mask bit
//          for bit on one backend, for any number of threads.
// Memory:  see Backend::EstimateHostBytes; of methods with own weights also
//          SparseGptBytes, AlpsBytes; with the joint search JointStartBytes; with a shrinkage a
//          copy of G, on the device or the host.
// Threads: safe to call concurrently.
// Cost:    backend-specific; docs/numerics.md.
// Errors:  what ValidateProblem and ValidateOptions say
//          InvalidArgument    a loss is negative by more than the rounding of G
//                             explains, 2^-8 sum W_ij^2 G_jj: G is not positive
//                             semi-definite (GRAM_NOT_POSITIVE_DEFINITE; less
//                             counts as 0); kSparseGpt: G is not positive
//                             definite, whatever the damping (likewise); a new
//                             weight does not fit the dtype of W (NON_FINITE)
//          Cancelled          stopped before there was a mask
//          DeadlineExceeded   the deadline passed before there was a mask
//          ResourceExhausted  memory
//          Unimplemented      the joint search, of a backend without (OPTION_INVALID)
//          FailedPrecondition checkpoints.resume is cut off or damaged, or was
//                             written by another version or engine, with other
//                             options or inputs (CHECKPOINT_INVALID): the solve
//                             can be begun without it
//
// Checkpoints: of kSparseFw, and before the reconstruction of one-shot methods
//          with swaps; of engines whose Backend::checkpoint_tag is not empty.
//          Otherwise the sink is not asked. The deadline may differ from that of
//          the solve that wrote one. A solve that goes on begins with the report of
//          the checkpoint; times include those of the solve before.
absl::StatusOr<SolveResult> Solve(const Problem& problem, const SolveOptions& options,
                                  const Backend& backend, SolveObserver* observer,
                                  const StopSignal* stop, const Checkpoints& checkpoints = {});

}  // namespace sparsefw

#endif  // SPARSEFW_SOLVER_H_
