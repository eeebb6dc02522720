// The kernels of a Frank-Wolfe iteration, each on its own, and the graph of a whole iteration.
#include <string>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/smoke/smoke_iterate.h"
#include "core/src/cuda/runtime/stream.h"

namespace sparsefw::bench {
namespace {

constexpr int kReplays = 20;

// The kernels of one pattern.
class Kernels {
 public:
  Kernels(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols)
      : smoke_(smoke), name_(pattern + " float32 "), at_(ParsePattern(pattern), rows, cols) {}

  void Start() {
    Run("begin", [this](auto stream) { return cuda::LaunchBeginIteration(it(), stream); });
    Run("pruned", [this](auto stream) {
      return cuda::LaunchPruned(it(), cuda::Point::kVertex, 0, it().rows, at_.Operand(), stream);
    });
    Run("vertex loss", [this](auto stream) { return cuda::LaunchVertexLoss(it(), stream); });
    Run("count toggles", [this](auto stream) { return cuda::LaunchCountToggles(it(), stream); });
  }

  void Update() {
    Run("update by rows", [this](auto stream) { return cuda::LaunchVertexUpdate(it(), stream); });
    Run("toggle and prune", [this](auto stream) {
      return cuda::LaunchPruned(it(), cuda::Point::kNextVertex, 0, it().rows, at_.Operand(),
                                stream);
    });
    Run("take step", [this](auto stream) { return cuda::LaunchTakeStep(it(), stream); });
    Run("move", [this](auto stream) { return cuda::LaunchMove(it(), stream); });
  }

  void Select() {
    const auto select = [this](auto stream) {
      return cuda::LaunchSelect(it(), cuda::Motion::kMove, stream);
    };
    Run("select", select);
    // Where the window knows the threshold of a selection just before it.
    const auto again = [this] {
      OrDie(cuda::LaunchSelect(it(), cuda::Motion::kStay, nullptr));
      OrDie(cuda::LaunchFinishStep(it(), nullptr));
    };
    Run("select again", select, again);
    Run(
        "finish step", [this](auto stream) { return cuda::LaunchFinishStep(it(), stream); },
        [this] { OrDie(cuda::LaunchSelect(it(), cuda::Motion::kStay, nullptr)); });
    Run(
        "round",
        [this](auto stream) { return cuda::LaunchRound(it(), at_.saliency(), at_.mask(), stream); },
        [this] { Begin(); });
  }

  void Refresh() {
    const auto compare = [this](auto stream) -> cuda::CudaError {
      const cuda::CudaError compared =
          cuda::LaunchCompare(it(), 0, it().rows, it().vertex_product, true, stream);
      if (compared.code != cudaSuccess) return compared;
      return cuda::LaunchFinishCompare(it(), true, stream);
    };
    Run("compare", compare, [this] { Begin(); });  // M = the previous vertex
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
          Begin();
        },
        [&](auto on) -> absl::Status {
          for (int i = 0; i < kReplays; ++i) {
            SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(graph->get(), on));
          }
          return absl::OkStatus();
        });
    // A graph without a kernel is captured and replayed just as well, and fast.
    smoke_.Begin(name_ + "replays");
    cuda::StepState state;
    OrDie(cuda::CopyAndWait(&state, it().state, 1, cudaMemcpyDeviceToHost, nullptr));
    const int64_t taken = state.recurrence.iteration;
    smoke_.Report(name_ + "replays", taken == kReplays,
                  absl::StrFormat("%d replays took %d iterations", kReplays, taken));
  }

 private:
  const cuda::IterateView<float>& it() const { return at_.it(); }

  void Begin() { OrDie(cuda::LaunchBeginIteration(it(), nullptr)); }

  // `prepare` follows the reset of all data before each launch.
  void Run(
      const std::string& name, const std::function<cuda::CudaError(cudaStream_t)>& launch,
      const std::function<void()>& prepare = [] {}) {
    smoke_.Kernel(
        name_ + name,
        [&] {
          at_.Reset();
          prepare();
        },
        [&](cudaStream_t stream) { return cuda::ToStatus(launch(stream)); });
  }

  absl::Status Iteration(cudaStream_t stream) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(cuda::LaunchVertexUpdate(it(), stream));
    SPARSEFW_CUDA_RETURN_IF_ERROR(cuda::LaunchSelect(it(), cuda::Motion::kMove, stream));
    return cuda::ToStatus(cuda::LaunchFinishStep(it(), stream));
  }

  Smoke& smoke_;
  const std::string name_;
  SmokeIterate at_;
};

}  // namespace

void SmokeIteration(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols) {
  Kernels kernels(smoke, pattern, rows, cols);
  kernels.Start();
  kernels.Update();
  kernels.Select();
  kernels.Refresh();
}

void SmokeCapture(Smoke& smoke, int64_t rows, int64_t cols) {
  for (const char* pattern : {"unstructured:0.6", "per_row:0.6", "2:4"}) {
    Kernels(smoke, pattern, rows, cols).Capture();
  }
}

}  // namespace sparsefw::bench
