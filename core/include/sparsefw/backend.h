// The backend seam: the solver's outer logic is written once; a backend
// supplies engines that do the arithmetic of one problem.
#ifndef SPARSEFW_BACKEND_H_
#define SPARSEFW_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/dtype.h"
#include "sparsefw/engine_details.h"
#include "sparsefw/gram.h"
#include "sparsefw/iteration_state.h"
#include "sparsefw/joint.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"
#include "sparsefw/saliency.h"
#include "sparsefw/sparsegpt.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw {

enum class StepRule {
  kOpenLoop,    // eta_t = 2 / (t + 2); eta_0 = 1 discards the warm start
  kLineSearch,  // eta_t = clip(g_t / (2 q_t), 0, 1), q_t = <dD, dD G>, dD = W.(V_t - M_t)
  kAuto,        // of SolveOptions only: WithStepRule (solver.h) says which; no engine is given it
};
std::string_view NameOf(StepRule rule);  // "line_search"

// Masks that an engine chooses in Load, on its device: the bits of TopScores and FixedSet of
// saliency.h with the scores of EngineProblem::saliency.
struct StartChoice {
  Mask* warm = nullptr;   // is read where warm_is_given, and written otherwise
  Mask* fixed = nullptr;  // is written
  bool warm_is_given = false;
  bool fix_all = false;  // the fixed set is the warm start; nothing is selected from it by alpha
  double alpha = 0;      // in [0, 1]
};

// A validated problem with its starting point. Views and pointers: what they
// refer to must outlive the engine, which reads W and G again for every Loss and W in every
// Step.
struct EngineProblem {
  ConstMatrixView weights;  // [rows, cols] F32, F16, BF16
  ConstMatrixView gram;     // [cols, cols] F32, F64; engines use (G + G^T)/2
  Pattern pattern;
  SaliencySource saliency;      // [rows, cols]: breaks ties of rounding
  const Mask* warm = nullptr;   // meets the pattern
  const Mask* fixed = nullptr;  // subset of warm
  // Not null: warm and fixed are its masks, which Load fills first. Only for engines of a backend
  // that chooses_start, with a saliency that has terms. Used during Load only.
  const StartChoice* choice = nullptr;
  // Load will be called again with other starts on the same weights and gram:
  // intermediate results that they can reuse are worth their memory.
  bool reused = false;
  // `gram` on the device of the engine, which reads it there instead. Null: an
  // engine whose device has its own memory uploads it when it is loaded first.
  const DeviceGram* device_gram = nullptr;
  // Above 0: G is (1 - shrinkage) G + shrinkage diag(G) of these, each entry rounded once to their
  // dtype. Only for engines of a backend that shrinks_gram.
  double shrinkage = 0;
};

// State of the relaxed iterate after Step. All of them belong to the same
// iterate M_t, t = iteration.
struct StepStats {
  int64_t iteration = 0;    // steps taken since Load
  double relaxed_loss = 0;  // L(M_t)
  double gap = 0;           // g_t at M_t, >= 0
  double step_size = 0;     // eta of the last step; 0 before the first
  // max over the iterates seen, the current included, of L(M_s) - g_s
  double lower_bound = 0;
  // Coordinates that entered or left the vertex, summed over the steps since Load: |V_s xor
  // V_{s-1}|, with V_{-1} = M_0. This is what incremental updates cost. An engine may leave out
  // weights that are 0.
  int64_t toggled = 0;
  bool reached_gap = false;  // stopped because gap <= rel_gap * relaxed_loss
  // The error of the recurrences, the largest seen where E = D(M_t) G was
  // also computed as a dense product: ||E - dense||_F / ||dense||_F over the free
  // coordinates or |L - <D, dense>| / <D, dense>, whichever is larger. 0 where nothing was
  // compared, and for engines without recurrences.
  double drift = 0;
  EngineStats engine = {};
};

struct StepRequest {
  int64_t count = 0;  // steps to take; 0 evaluates loss and gap where it stands
  StepRule rule = StepRule::kOpenLoop;
  double rel_gap = 0;          // stop before a step when the gap is this small; 0: never
  bool measure_drift = false;  // afterwards, for StepStats::drift; one dense product
};

struct RoundedMask {
  Mask mask;
  double threshold_residual = 0;  // ||M_t - round(M_t)||_1 / k, 0 when k = 0
};

// A mask of the layer with its loss.
struct KnownLoss {
  const Mask& mask;
  double loss = 0;
};

struct RefineRequest {
  bool keep_fixed = true;  // weights of EngineProblem::fixed are not swapped out
  // Ends the refinement with the mask so far. May be empty; called often, from
  // any thread and from several at once.
  std::function<bool()> out_of_time = {};
};

struct RefinedMask {
  Mask mask;  // meets the pattern as the start does
  int64_t swaps = 0;
  double loss_change = 0;  // L(mask) - L(start), the float64 sum over the swaps; <= 0
  bool converged = false;  // no exchange lowers the loss; false where it was cut short
};

struct ReconstructRequest {
  // Ends the iteration with the weights so far, which are never worse than the
  // masked ones. May be empty; called on the calling thread.
  std::function<bool()> out_of_time = {};
};

// The methods that find mask and new weights together.
enum class WeightMethod { kSparseGpt, kAlps };

struct PruneRequest {
  WeightMethod method = WeightMethod::kAlps;
  SparseGptOptions sparsegpt = {};
  // Ends it without a result. May be empty; called on the calling thread.
  std::function<bool()> out_of_time = {};
};

struct PrunedWeights {
  Mask mask;              // meets the pattern exactly
  Matrix<float> weights;  // [rows, cols]: values of the dtype of W; 0 where pruned
  double damping = 0;     // that was enough
};

// One problem on one device. Not thread-safe; used by one thread at a time. An implementation may
// assume validated input. Every method that can take longer than 50 ms looks at the stop signal
// given to CreateEngine and returns Cancelled when it is set.
class Engine {
 public:
  virtual ~Engine() = default;

  // Called first. Called again it begins anew from another start on the same
  // weights and gram: engines keep what they made of these.
  virtual absl::Status Load(const EngineProblem& problem) = 0;

  // Takes up to request.count Frank-Wolfe steps without returning to the
  // caller. The step of iteration t: V_t = in every group the (free capacity)
  // free coordinates with the largest score W.E(M_t), only those above 0; then
  // M_{t+1} = (1 - eta) M_t + eta V_t.
  virtual absl::StatusOr<StepStats> Step(const StepRequest& request) = 0;

  // In every group the (free capacity) largest free entries of M_t, ties by
  // saliency, then by the higher index, and the fixed set.
  virtual absl::StatusOr<RoundedMask> Round() = 0;

  // L(mask), from scratch: products of the inputs, float64 accumulation.
  // An all-zero mask gives ||WX||^2.
  virtual absl::StatusOr<double> Loss(const Mask& mask) = 0;

  // The same, where the loss of another mask is known. An engine may add to that loss, in float64,
  // the change by the weights that only one of the masks keeps. It computes the loss from scratch
  // where that is no more work.
  virtual absl::StatusOr<double> LossNear(const Mask& mask, const KnownLoss& /*known*/) {
    return Loss(mask);
  }

  // Exchanges kept and pruned weights of a group as long as that lowers the
  // loss, from `start`, which meets the pattern. Unlike the other methods it
  // returns what it has, not Cancelled, when the stop signal ends it while it
  // swaps. Releases the iterate: Step and Round begin again at the warm start.
  virtual absl::StatusOr<RefinedMask> Refine(const Mask& start, const RefineRequest& request) = 0;

  // The weights that are zero outside the mask and lose least: for every row
  //   min ||(w - w_hat) X||^2,  that is  G_SS w_hat_S = (G w)_S,  S the row's kept columns,
  // rounded to the dtype of the weights. Where G_SS is singular, the solution
  // found from w_S on; weights of dead inputs (G_jj = 0) keep their value. A
  // row whose loss would not be lower than that of its masked weights keeps
  // those. [rows, cols]. Releases the iterate as Refine does.
  virtual absl::StatusOr<Matrix<float>> Reconstruct(const Mask& mask,
                                                    const ReconstructRequest& request) = 0;

  // Exchanges kept and removed weights of a group, all kept weights of the row solved
  // anew each time, as long as that lowers the loss: sparsefw/joint.h. Like Refine it
  // returns what it has when the stop signal ends it, and releases the iterate.
  virtual absl::StatusOr<JointResult> SearchJointly(const Mask& /*start*/,
                                                    const JointRequest& /*request*/) {
    return absl::UnimplementedError("this engine has no joint search");
  }

  // ||(W - weights) X||^2, from scratch like Loss. weights: [rows, cols].
  virtual absl::StatusOr<double> LossOfWeights(const Matrix<float>& weights) = 0;

  // Mask and weights by sparsefw/sparsegpt.h or sparsefw/alps.h, in float64, from W and G alone.
  // Releases the iterate. Only of a backend whose CheckPrune is OK.
  // Errors: Cancelled (also where request.out_of_time ends it); InvalidArgument
  //         (GRAM_NOT_POSITIVE_DEFINITE, NON_FINITE)
  virtual absl::StatusOr<PrunedWeights> Prune(const PruneRequest& /*request*/) {
    return absl::UnimplementedError("this engine does not prune by itself");
  }

  // Writes all that the coming steps and roundings depend on, after a Step.
  // Changes nothing. Only where Backend::checkpoint_tag is not empty, as below.
  // Errors: what the writer says; FailedPrecondition before the first Step
  virtual absl::Status SaveIteration(StateWriter& /*writer*/) {
    return absl::UnimplementedError("this engine has no checkpoints");
  }

  // After Load with the problem of SaveIteration, in place of the Step that comes
  // first: what follows has the same bits as if the engine were the one that was
  // saved. After an error it must be loaded again.
  // Errors: FailedPrecondition (CHECKPOINT_INVALID)  not the state of such an engine
  virtual absl::Status RestoreIteration(StateReader& /*reader*/) {
    return absl::UnimplementedError("this engine has no checkpoints");
  }
};

struct EngineOptions {
  int threads = 0;                   // 0: all cores
  const StopSignal* stop = nullptr;  // may be null
  ProductPrecision product_precision = ProductPrecision::kFloat32;
  Precision precision = Precision::kAuto;
  EngineTuning tuning = {};  // for tests and benchmarks
};

struct DeviceDescription {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "AMD EPYC 9B14, 2 threads, AVX-512"
  int64_t memory_bytes = 0;
  std::string pci_bus_id = {};  // "00000000:3B:00.0", as NVML writes it; "" for what is no card
};

// The properties of a solve that determine how much memory it needs.
struct MemoryRequest {
  bool swaps = false;
  bool reconstruct = false;
  bool joint = false;
  bool sweep = false;    // EngineProblem::reused
  bool iterates = true;  // Step and Round are called
  bool prunes = false;   // Prune is called, with these two
  WeightMethod method = WeightMethod::kAlps;
  SparseGptOptions sparsegpt = {};
  Pattern pattern = {};      // with SparseGPT: its groups are chosen whole
  bool device_gram = false;  // EngineProblem::device_gram is given; not counted then
  bool shrinks = false;      // EngineProblem::shrinkage is: a G of its own beside device_gram
  DType weights = DType::kF32;
  DType gram = DType::kF32;
  ProductPrecision product_precision = ProductPrecision::kFloat32;
  Precision precision = Precision::kAuto;
};

// Thread-safe; lives as long as the program.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "reference", "cpu", "cuda"
  // As it was found: asks no driver, and says the same at every call.
  virtual DeviceDescription Describe() const = 0;
  // Memory of the device that nobody uses now; all of it where that is not known. Where the
  // device has its own memory, the first call begins its use by this process, and every call
  // may take as long as the driver takes.
  // Errors: what is wrong with the device, FailedPrecondition (DEVICE_UNAVAILABLE) or Internal
  virtual absl::StatusOr<int64_t> FreeMemoryBytes() const { return Describe().memory_bytes; }
  // Whether its engines work in a device's own memory, of which only so much is
  // there: a server places jobs on such a device by memory and streams.
  virtual bool has_device_memory() const { return false; }
  // Whether its engines take EngineProblem::choice, which saves a pass of the host over W.
  virtual bool chooses_start() const { return false; }
  // Whether its engines take EngineProblem::shrinkage, which saves the host a copy of G, and leaves
  // them the device_gram of others.
  virtual bool shrinks_gram() const { return false; }
  // OK where its engines have Prune. Otherwise SparseGPT and ALPS run on the CPU, and the
  // message, a clause, says why. The first call may open a library.
  virtual absl::Status CheckPrune() const { return absl::UnimplementedError("it runs on the CPU"); }
  virtual absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
      const EngineOptions& options) const = 0;
  // Names what the bits of its engines depend on beside the input: the engine, the
  // number of its saved state's layout, the kind of processor. Two engines with the
  // same tag continue each other's iterations. Empty: it has no checkpoints.
  virtual std::string checkpoint_tag() const { return {}; }
  virtual absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(
      int64_t d_in, int threads) const = 0;
  // Upper estimate of the bytes of the device's own memory that such an accumulator holds; 0 where
  // the device is the host.
  virtual int64_t DeviceGramSumBytes(int64_t /*d_in*/) const { return 0; }
  // Upper estimate of the bytes that a solve of this shape holds, the caller's
  // W and G not counted.
  virtual int64_t EstimateHostBytes(int64_t rows, int64_t cols,
                                    const MemoryRequest& request) const = 0;
  // Upper estimate, by a few per cent, of the bytes of the device's own memory
  // that an engine holds at its peak; 0 where the device is the host.
  virtual int64_t EstimateDeviceBytes(int64_t /*rows*/, int64_t /*cols*/,
                                      const MemoryRequest& /*request*/) const {
    return 0;
  }

  // Copies `gram`, [cols, cols] F32 or F64, to the device, for engines that this
  // backend makes. It can be used by any thread when it is returned; the view may
  // go then. Null where the device is the host, whose engines read the caller's.
  // `stop` may be null.
  // Errors: Cancelled, ResourceExhausted (OUT_OF_MEMORY), Internal (DEVICE_LOST)
  virtual absl::StatusOr<std::shared_ptr<const DeviceGram>> UploadGram(
      ConstMatrixView /*gram*/, const StopSignal* /*stop*/) const {
    return std::shared_ptr<const DeviceGram>();
  }
  // Upper estimate of the bytes of the device's own memory that it holds.
  virtual int64_t DeviceGramBytes(int64_t /*cols*/, DType /*gram*/) const { return 0; }
};

// The one table that knows the backends, in order of preference: one for each
// CUDA device, then the CPU; the slowest, the reference, comes last. Made at its
// first use, which looks for the CUDA module. Pointers live as long as the program.
// Thread-safe, as the functions below.
std::span<const Backend* const> Backends();

// `name`: that of a backend ("cuda" is the first CUDA device) or of a device
// ("cuda:1").
// Errors: FailedPrecondition (DEVICE_UNAVAILABLE), naming the devices there are
//         and, of a CUDA device that cannot be used or where there is none, why.
absl::StatusOr<const Backend*> FindBackend(std::string_view name);

// A device that is there and cannot be used.
struct UnusableDevice {
  std::string name;    // "cuda:1"
  std::string reason;  // a sentence without its full stop
};

// Whether devices of a kind that not every machine has were found.
struct DeviceProbe {
  std::string name;  // "cuda"
  bool available = false;
  std::string reason;  // what was found, or why nothing; a sentence without its full stop
  std::vector<UnusableDevice> unusable = {};  // beside those that are available
};
std::vector<DeviceProbe> ProbeDevices();

}  // namespace sparsefw

#endif  // SPARSEFW_BACKEND_H_
