// The kernels of a Frank-Wolfe iteration, each on its own, and the graph of a whole iteration.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/smoke/smoke_iterate.h"
#include "core/src/cuda/runtime/stream.h"

namespace sparsefw::bench {
namespace {

using cuda::BitWord;
using cuda::StepState;

constexpr int64_t kBatch = 4;
constexpr int kReplays = 20;

// The error that kernels of one precision may have.
template <typename Real>
constexpr double kRounding = sizeof(Real) == sizeof(float) ? 2e-5 : 1e-12;

// The error of a value as the sum of two float16 ones, of the largest.
template <typename Real>
constexpr double kSplit = sizeof(Real) == sizeof(float) ? 0x1.0p-22 : 0;

int64_t Different(const std::vector<BitWord>& a, const std::vector<BitWord>& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += __builtin_popcount(a[i] ^ b[i]);
  return count;
}

// The first that fails, or the one that is off most.
Verdict Worst(std::initializer_list<Verdict> verdicts) {
  Verdict worst = *verdicts.begin();
  for (const Verdict& verdict : verdicts) {
    if (!(verdict.error <= verdict.limit)) return verdict;
    if (verdict.error > worst.error) worst = verdict;
  }
  return worst;
}

Verdict Exactly(int64_t difference) { return {static_cast<double>(difference), 0}; }

// The kernels of one precision and pattern.
template <typename Real>
class Kernels {
 public:
  Kernels(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols)
      : smoke_(smoke),
        name_(pattern + (sizeof(Real) == sizeof(float) ? " float32 " : " float64 ")),
        at_(ParsePattern(pattern), rows, cols) {
    if (smoke_.timing()) return;
    // U of the previous vertex, so that an update can be held against a new product.
    const std::vector<double> pruned = at_.Pruned(at_.previous_);
    const std::vector<double> product = at_.Product(pruned);
    std::transform(product.begin(), product.end(), at_.vertex_product_.begin(),
                   [](double value) { return static_cast<Real>(value); });
    at_.start_.recurrence.vertex_loss = at_.Inner(pruned, at_.vertex_product_);
    at_.Reset();
  }

  void Start() {
    Run(
        "begin",
        [this](auto stream) { return cuda::ToStatus(cuda::LaunchBeginIteration(it(), stream)); },
        [this] {
          double off = 0;
          const std::vector<Real> entries = at_.d_entries_.Get();
          for (int64_t i = 0; i < it().rows * it().stride; ++i) {
            const double expected = at_.Bit(at_.previous_, i) ? 1 : 0;
            off += std::abs(static_cast<double>(entries[static_cast<size_t>(i)]) - expected);
          }
          return Verdict{off + std::abs(at_.d_state_.Front().scale.decay - 1), 0};
        });
    Run(
        "pruned",
        [this](auto stream) {
          return cuda::ToStatus(
              cuda::LaunchPruned(it(), cuda::Point::kVertex, 0, it().rows, at_.Operand(), stream));
        },
        [this] { return Compare(at_.OperandValues(), at_.Pruned(at_.previous_), kSplit<Real>); });
    Run(
        "vertex loss",
        [this](auto stream) { return cuda::ToStatus(cuda::LaunchVertexLoss(it(), stream)); },
        [this] { return Loss(at_.previous_, at_.vertex_product_, 1e-10); });
    Run(
        "count toggles",
        [this](auto stream) { return cuda::ToStatus(cuda::LaunchCountToggles(it(), stream)); },
        [this] { return Exactly(Toggled() - static_cast<int64_t>(at_.d_state_.Front().pending)); });
  }

  void Update() {
    Run(
        "update by rows",
        [this](auto stream) { return cuda::ToStatus(cuda::LaunchVertexUpdate(it(), stream)); },
        [this] { return Updated(); });
    Run(
        "toggle and prune",
        [this](auto stream) {
          return cuda::ToStatus(cuda::LaunchPruned(it(), cuda::Point::kNextVertex, 0, it().rows,
                                                   at_.Operand(), stream));
        },
        [this] {
          return Worst(
              {TookVertex(), Compare(at_.OperandValues(), at_.Pruned(at_.vertex_), kSplit<Real>)});
        });
    Run(
        "take step",
        [this](auto stream) { return cuda::ToStatus(cuda::LaunchTakeStep(it(), stream)); },
        [this] {
          StepState expected = at_.start_;
          expected.recurrence.vertex_loss =
              at_.Inner(at_.Pruned(at_.previous_), at_.vertex_product_);
          const double eta = cuda::ChooseStep<Real>(expected);
          TakeStep(expected.recurrence, eta);
          const StepState state = at_.d_state_.Front();
          return Compare({state.recurrence.step_size, state.recurrence.relaxed_loss,
                          static_cast<double>(state.recurrence.iteration)},
                         {eta, expected.recurrence.relaxed_loss,
                          static_cast<double>(expected.recurrence.iteration)},
                         1e-10);
        });
    Run(
        "move", [this](auto stream) { return cuda::ToStatus(cuda::LaunchMove(it(), stream)); },
        [this] { return Moved(); });
  }

  void Select() {
    const auto select = [this](auto stream) {
      return cuda::ToStatus(cuda::LaunchSelect(it(), cuda::Motion::kMove, stream));
    };
    Run("select", select, [this] { return Worst({Moved(), Selected()}); });
    // Where the window knows the threshold of a selection just before it.
    const auto again = [this] {
      at_.Reset();
      OrDie(cuda::LaunchSelect(it(), cuda::Motion::kStay, nullptr));
      OrDie(cuda::LaunchFinishStep(it(), nullptr));
    };
    smoke_.Kernel(name_ + "select again", again, select, [this] {
      return Worst({Moved(), Selected()});
    });
    smoke_.Kernel(
        name_ + "finish step",
        [this] {
          at_.Reset();
          OrDie(cuda::LaunchSelect(it(), cuda::Motion::kStay, nullptr));
        },
        [this](auto stream) { return cuda::ToStatus(cuda::LaunchFinishStep(it(), stream)); },
        [this] {
          const std::vector<double> pruned = at_.Pruned(at_.d_vertex_.Get());
          return Compare({at_.d_state_.Front().recurrence.vertex_inner},
                         {at_.Inner(pruned, at_.product_)}, 1e-9);
        });
    smoke_.Kernel(
        name_ + "round",
        [this] {
          at_.Reset();
          OrDie(cuda::LaunchBeginIteration(it(), nullptr));
        },
        [this](auto stream) {
          return cuda::ToStatus(
              cuda::LaunchRound(it(), at_.d_saliency_.data(), at_.d_mask_.data(), stream));
        },
        [this] { return Rounded(); });
  }

  void Refresh() {
    smoke_.Kernel(
        name_ + "compare",
        [this] {
          at_.Reset();
          OrDie(cuda::LaunchBeginIteration(it(), nullptr));  // M = the previous vertex
        },
        [this](auto stream) -> absl::Status {
          SPARSEFW_CUDA_RETURN_IF_ERROR(
              cuda::LaunchCompare(it(), 0, it().rows, at_.d_vertex_product_.data(), true, stream));
          return cuda::ToStatus(cuda::LaunchFinishCompare(it(), true, stream));
        },
        [this] {
          return Compare({at_.d_state_.Front().recurrence.relaxed_loss},
                         {at_.start_.recurrence.vertex_loss}, 1e-10);
        });
  }

  // Several iterations of a row at once, against the same steps one by one.
  void Batch() {
    if (!cuda::CanBatchRows(it())) return;
    std::vector<Real> expected;
    StepState state;
    const auto begin = [this] {
      at_.Reset();
      OrDie(cuda::LaunchBeginIteration(it(), nullptr));
      OrDie(cuda::LaunchSelect(it(), cuda::Motion::kStay, nullptr));
      OrDie(cuda::LaunchFinishStep(it(), nullptr));
    };
    if (!smoke_.timing()) {
      begin();
      for (int64_t i = 0; i < kBatch; ++i) OrDie(Iteration(nullptr));
      expected = at_.d_product_.Get();
      state = at_.d_state_.Front();
    }
    smoke_.Kernel(
        name_ + "batch of rows", begin,
        [this](auto stream) { return cuda::ToStatus(cuda::LaunchRowBatch(it(), kBatch, stream)); },
        [&] {
          const StepState actual = at_.d_state_.Front();
          return Worst(
              {Compare(AsDoubles(at_.d_product_.Get()), AsDoubles(expected), 1e-4),
               Compare({actual.recurrence.relaxed_loss}, {state.recurrence.relaxed_loss}, 1e-4),
               Exactly(actual.recurrence.iteration - state.recurrence.iteration)});
        });
  }

  void Capture() {
    smoke_.Begin(name_ + "capture");
    at_.Reset();
    const cuda::Stream stream = OrDie(cuda::CreateStream());
    const auto graph = cuda::CaptureGraph(stream.get(), [this](auto on) { return Iteration(on); });
    smoke_.Report(name_ + "capture", graph.ok(), graph.ok() ? "yes" : graph.status().ToString());
    if (!graph.ok()) return;
    smoke_.Kernel(
        name_ + absl::StrFormat("%d iterations as a graph", kReplays),
        [this] {
          at_.Reset();
          OrDie(cuda::LaunchBeginIteration(it(), nullptr));
        },
        [&](auto on) -> absl::Status {
          for (int i = 0; i < kReplays; ++i) {
            SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(graph->get(), on));
          }
          return absl::OkStatus();
        },
        [this] { return Exactly(at_.d_state_.Front().recurrence.iteration - kReplays); });
  }

 private:
  const cuda::IterateView<Real>& it() const { return at_.it(); }

  void Run(const std::string& name, const Smoke::Launch& launch,
           const std::function<Verdict()>& check) {
    smoke_.Kernel(
        name_ + name, [this] { at_.Reset(); }, launch, check);
  }

  absl::Status Iteration(cudaStream_t stream) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(cuda::LaunchVertexUpdate(it(), stream));
    SPARSEFW_CUDA_RETURN_IF_ERROR(cuda::LaunchSelect(it(), cuda::Motion::kMove, stream));
    return cuda::ToStatus(cuda::LaunchFinishStep(it(), stream));
  }

  int64_t Toggled() const { return Different(at_.previous_, at_.vertex_); }

  Verdict Loss(const std::vector<BitWord>& vertex, const std::vector<Real>& product, double limit) {
    return Compare({at_.d_state_.Front().recurrence.vertex_loss},
                   {at_.Inner(at_.Pruned(vertex), product)}, limit);
  }

  Verdict TookVertex() {
    const auto toggled = static_cast<int64_t>(at_.d_state_.Front().toggled);
    return Worst(
        {Exactly(Different(at_.d_previous_.Get(), at_.vertex_)), Exactly(toggled - Toggled())});
  }

  Verdict Updated() {
    const std::vector<Real> product = at_.d_vertex_product_.Get();
    return Worst(
        {TookVertex(),
         Compare(AsDoubles(product), at_.Product(at_.Pruned(at_.vertex_)), kRounding<Real>),
         Loss(at_.vertex_, product, 10 * kRounding<Real>)});
  }

  Verdict Moved() {
    std::vector<double> expected = AsDoubles(at_.product_);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double to = static_cast<double>(at_.vertex_product_[i]);
      expected[i] += at_.start_.recurrence.step_size * (to - expected[i]);
    }
    return Compare(AsDoubles(at_.d_product_.Get()), expected, kRounding<Real>);
  }

  // Selects by the scores that the device has: one that rounds otherwise is no other vertex here.
  Verdict Selected() {
    return Exactly(Different(at_.d_vertex_.Get(), at_.SelectBySorting(at_.d_product_.Get())));
  }

  // As many as there may be, and the entries of M that are 1 before those that are 0.
  Verdict Rounded() {
    const std::vector<BitWord> mask = at_.d_mask_.Get();
    int64_t kept = 0;
    int64_t ones = 0;
    int64_t ones_kept = 0;
    int64_t fixed_lost = 0;
    for (int64_t i = 0; i < it().rows * it().stride; ++i) {
      const bool in = at_.Bit(mask, i);
      kept += in ? 1 : 0;
      ones += at_.Bit(at_.previous_, i) ? 1 : 0;
      ones_kept += in && at_.Bit(at_.previous_, i) ? 1 : 0;
      fixed_lost += at_.Bit(at_.fixed_, i) && !in ? 1 : 0;
    }
    int64_t off = std::abs(kept - it().groups.total_kept) + fixed_lost;
    if (it().groups.whole_matrix) off += std::abs(ones_kept - std::min(ones, it().free_total));
    return Exactly(off);
  }

  Smoke& smoke_;
  const std::string name_;
  SmokeIterate<Real> at_;
};

template <typename Real>
void AllKernels(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols) {
  Kernels<Real> kernels(smoke, pattern, rows, cols);
  kernels.Start();
  kernels.Update();
  kernels.Select();
  kernels.Refresh();
  kernels.Batch();
}

}  // namespace

void SmokeIteration(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols) {
  AllKernels<float>(smoke, pattern, rows, cols);
  if (!smoke.timing()) AllKernels<double>(smoke, pattern, rows, cols);
}

void SmokeCapture(Smoke& smoke, int64_t rows, int64_t cols) {
  for (const char* pattern : {"unstructured:0.6", "per_row:0.6", "2:4"}) {
    Kernels<float>(smoke, pattern, rows, cols).Capture();
  }
}

}  // namespace sparsefw::bench
