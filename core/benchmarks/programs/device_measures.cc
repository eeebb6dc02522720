#include "core/benchmarks/programs/device_measures.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "sparsefw/gram.h"
#include "sparsefw/options.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

using Json = DeviceMeasures::Json;

constexpr int kCalls = 5;  // of something short; the median counts

absl::Status Unknown(const std::string& what, const std::string& value, const std::string& known) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s must be %s; got \"%s\"", what, known, value));
}

absl::StatusOr<StepRule> RuleOf(const Json& request) {
  return ValueOf("rule", request.value("rule", "open-loop"),
                 {StepRule::kOpenLoop, StepRule::kLineSearch});
}

// "auto": whichever the engine chooses, iteration by iteration.
absl::Status SetForm(const Json& request, EngineOptions& options) {
  constexpr double kNever = 2;
  const std::string text = request.value("form", "auto");
  if (text == "auto") return absl::OkStatus();
  if (text != "rows" && text != "dense") {
    return Unknown("form", text, "auto, rows or dense");
  }
  options.tuning.dense_share = text == "dense" ? 0 : kNever;
  return absl::OkStatus();
}

// The median of what `measure` says, called kCalls times.
template <typename Measure>
absl::StatusOr<double> MedianSeconds(const Measure& measure) {
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) {
    const Stopwatch watch;
    SPARSEFW_RETURN_IF_ERROR(measure());
    seconds.push_back(watch.seconds());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kCalls / 2];
}

struct WarmEngine {
  std::unique_ptr<Engine> engine;  // has done everything once
  double load_seconds = 0;         // of what a new engine does before its first step
};

absl::StatusOr<WarmEngine> MakeWarmEngine(const Backend& backend, int threads, const Json& request,
                                          const EngineProblem& problem) {
  EngineOptions options = {.threads = threads};
  SPARSEFW_ASSIGN_OR_RETURN(
      options.product_precision,
      ValueOf("precision", request.value("precision", "fp32"),
              {ProductPrecision::kFloat32, ProductPrecision::kTf32, ProductPrecision::kBf16}));
  options.tuning.screening =
      request.value("screened", true) ? Screening::kWhereItPays : Screening::kNever;
  SPARSEFW_RETURN_IF_ERROR(SetForm(request, options));
  SPARSEFW_ASSIGN_OR_RETURN(const StepRule rule, RuleOf(request));
  WarmEngine warm;
  const Stopwatch watch;
  SPARSEFW_ASSIGN_OR_RETURN(warm.engine, backend.CreateEngine(options));
  SPARSEFW_RETURN_IF_ERROR(warm.engine->Load(problem));
  SPARSEFW_RETURN_IF_ERROR(warm.engine->Step({.rule = rule}).status());
  warm.load_seconds = watch.seconds();
  const int64_t warm_up = request.value("warm_up", 5);
  if (warm_up > 0) {
    SPARSEFW_RETURN_IF_ERROR(warm.engine->Step({.count = warm_up, .rule = rule}).status());
  }
  return warm;
}

// Steps between two looks at the clock: few enough to keep the limit, and
// without any cost, since a batch ends where the next one begins.
int64_t BatchSize(int64_t iteration, int64_t mark, double elapsed, double limit) {
  if (iteration == 0) return 1;
  const double per_step = elapsed / static_cast<double>(iteration);
  const auto fits = static_cast<int64_t>((limit - elapsed) / per_step / 4);
  return std::clamp<int64_t>(fits, 1, mark - iteration);
}

Json MarkOf(const StepStats& stats, double seconds) {
  const auto steps = static_cast<double>(stats.iteration);
  return {{"iterations", stats.iteration},
          {"seconds", seconds},
          {"toggled_per_iteration", static_cast<double>(stats.toggled) / steps},
          {"screened_epochs", stats.engine.screening.epochs},
          {"screened_iterations", stats.engine.screening.iterations},
          {"active_share", stats.engine.screening.active_share},
          {"relaxed_loss", stats.relaxed_loss}};
}

struct TimedSteps {
  StepRule rule = StepRule::kOpenLoop;
  std::vector<int64_t> marks;  // ascending; the last one is the end
  double seconds = 0;          // no step is begun after that
};

absl::StatusOr<TimedSteps> StepsOf(const Json& request) {
  TimedSteps steps = {.marks = request.value("marks", std::vector<int64_t>()),
                      .seconds = request.value("seconds", 30.0)};
  SPARSEFW_ASSIGN_OR_RETURN(steps.rule, RuleOf(request));
  const int64_t end = request.value("iterations", int64_t{200});
  std::erase_if(steps.marks, [&](int64_t mark) { return mark < 1 || mark >= end; });
  steps.marks.push_back(end);
  std::sort(steps.marks.begin(), steps.marks.end());
  return steps;
}

// Steps from where a newly loaded engine stands, after an evaluation that is
// outside the clock. At every mark and at the end: seconds since the first
// step, the mean number of coordinates that changed per step, the relaxed loss.
absl::StatusOr<Json> RunTimedSteps(Engine& engine, const TimedSteps& options) {
  // Converts the layer and evaluates where it stands.
  SPARSEFW_RETURN_IF_ERROR(engine.Step({.rule = options.rule}).status());
  Json marks = Json::array();
  StepStats stats;
  const Stopwatch watch;
  double elapsed = 0;
  for (const int64_t mark : options.marks) {
    while (stats.iteration < mark && (elapsed < options.seconds || stats.iteration == 0)) {
      const int64_t count = BatchSize(stats.iteration, mark, elapsed, options.seconds);
      SPARSEFW_ASSIGN_OR_RETURN(stats, engine.Step({.count = count, .rule = options.rule}));
      elapsed = watch.seconds();
    }
    if (stats.iteration < mark) break;
    marks.push_back(MarkOf(stats, elapsed));
  }
  if (marks.empty() || marks.back()["iterations"] != stats.iteration) {
    marks.push_back(MarkOf(stats, elapsed));
  }
  return marks;
}

}  // namespace

DeviceMeasures::DeviceMeasures(const Backend& backend, int threads, LayerFile layer)
    : backend_(backend), threads_(threads), layer_(std::move(layer)) {}

absl::StatusOr<Json> DeviceMeasures::Run(const Json& request) {
  try {
    const std::string name = request.at("measure");
    if (name == "gram") return Gram(request);
    if (layer_.file == nullptr) return absl::InvalidArgumentError("--layer is missing");
    if (name == "iterations" || name == "forms") return Iterations(request);
    if (name == "stages") return Stages(request);
    if (name == "parallel") return Parallel(request);
    if (name == "preset") return SolveWhole(request);
    return Unknown("measure", name, "iterations, forms, stages, parallel, preset or gram");
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

absl::StatusOr<EngineProblem> DeviceMeasures::StartOf(const Json& request) {
  const std::string pattern = request.at("pattern");
  const double alpha = request.value("alpha", 0.9);
  StartingPoint& start = starts_[absl::StrFormat("%s alpha %.17g", pattern, alpha)];
  if (start.saliency.size() == 0) {
    // One at a time: each holds four bytes a weight.
    StartingPoint made = MakeStartingPoint(layer_, ParsePattern(pattern), alpha);
    start = std::move(made);
  }
  return start.problem(layer_);
}

absl::StatusOr<Json> DeviceMeasures::Iterations(const Json& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const EngineProblem problem, StartOf(request));
  SPARSEFW_ASSIGN_OR_RETURN(const TimedSteps steps, StepsOf(request));
  SPARSEFW_ASSIGN_OR_RETURN(const WarmEngine warm,
                            MakeWarmEngine(backend_, threads_, request, problem));
  Engine* const engine = warm.engine.get();
  Json answer = {{"load_seconds", warm.load_seconds}, {"runs", Json::array()}};
  const int64_t repetitions = request.value("repetitions", int64_t{1});
  int64_t capture_failures = 0;
  const Stopwatch watch;
  double per_run = 0;  // a repetition that would not fit the time is not begun
  const double limit = request.value("all_seconds", std::numeric_limits<double>::infinity());
  for (int64_t i = 0; i < repetitions && watch.seconds() + per_run <= limit; ++i) {
    SPARSEFW_RETURN_IF_ERROR(engine->Load(problem));
    SPARSEFW_ASSIGN_OR_RETURN(Json run, RunTimedSteps(*engine, steps));
    answer["runs"].push_back(std::move(run));
    SPARSEFW_ASSIGN_OR_RETURN(const StepStats last, engine->Step({.rule = steps.rule}));
    capture_failures += last.engine.capture_failures;
    per_run = watch.seconds() / static_cast<double>(i + 1);
  }
  answer["capture_failures"] = capture_failures;
  return answer;
}

absl::StatusOr<Json> DeviceMeasures::Stages(const Json& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const EngineProblem problem, StartOf(request));
  const double limit = request.value("seconds", 30.0);
  SPARSEFW_ASSIGN_OR_RETURN(const WarmEngine warm,
                            MakeWarmEngine(backend_, threads_, request, problem));
  Engine* const engine = warm.engine.get();
  SPARSEFW_RETURN_IF_ERROR(engine->Load(problem));
  const int64_t steps = request.value("steps", int64_t{100});
  SPARSEFW_RETURN_IF_ERROR(engine->Step({.count = steps, .rule = StepRule::kLineSearch}).status());
  Json answer;
  RoundedMask rounded;
  SPARSEFW_ASSIGN_OR_RETURN(answer["round_seconds"], MedianSeconds([&]() -> absl::Status {
                              SPARSEFW_ASSIGN_OR_RETURN(rounded, engine->Round());
                              return absl::OkStatus();
                            }));
  double loss = 0;
  SPARSEFW_ASSIGN_OR_RETURN(answer["loss_seconds"], MedianSeconds([&]() -> absl::Status {
                              SPARSEFW_ASSIGN_OR_RETURN(loss, engine->Loss(rounded.mask));
                              return absl::OkStatus();
                            }));
  answer["loss"] = loss;

  const Stopwatch refining;
  const auto refine_is_late = [&] { return refining.seconds() > limit; };
  SPARSEFW_ASSIGN_OR_RETURN(const RefinedMask refined,
                            engine->Refine(rounded.mask, {.out_of_time = refine_is_late}));
  answer.update({{"refine_seconds", refining.seconds()},
                 {"swaps", refined.swaps},
                 {"refine_converged", refined.converged},
                 {"refined_loss", loss + refined.loss_change}});

  const Stopwatch reconstructing;
  const auto reconstruct_is_late = [&] { return reconstructing.seconds() > limit; };
  SPARSEFW_ASSIGN_OR_RETURN(
      const Matrix<float> weights,
      engine->Reconstruct(refined.mask, {.out_of_time = reconstruct_is_late}));
  answer["reconstruct_seconds"] = reconstructing.seconds();
  SPARSEFW_ASSIGN_OR_RETURN(answer["reconstructed_loss"], engine->LossOfWeights(weights));
  return answer;
}

absl::StatusOr<Json> DeviceMeasures::Parallel(const Json& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const EngineProblem problem, StartOf(request));
  const int64_t engines = request.value("engines", int64_t{4});
  const StepRequest steps = {.count = request.value("iterations", int64_t{200})};
  std::vector<std::unique_ptr<Engine>> all;
  for (int64_t i = 0; i < engines; ++i) {
    SPARSEFW_ASSIGN_OR_RETURN(WarmEngine warm,
                              MakeWarmEngine(backend_, threads_, request, problem));
    SPARSEFW_RETURN_IF_ERROR(warm.engine->Load(problem));
    SPARSEFW_RETURN_IF_ERROR(warm.engine->Step({}).status());
    all.push_back(std::move(warm.engine));
  }
  std::vector<absl::Status> statuses(all.size());
  std::barrier begin(static_cast<std::ptrdiff_t>(all.size() + 1));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      begin.arrive_and_wait();
      statuses[i] = all[i]->Step(steps).status();
    });
  }
  begin.arrive_and_wait();
  const Stopwatch watch;
  for (std::jthread& thread : threads) thread.join();
  const double seconds = watch.seconds();
  for (const absl::Status& status : statuses) SPARSEFW_RETURN_IF_ERROR(status);
  return Json{{"together_seconds", seconds}};
}

absl::StatusOr<Json> DeviceMeasures::SolveWhole(const Json& request) {
  Problem problem;
  problem.weights = layer_.weights;
  problem.gram = layer_.gram;
  problem.pattern = ParsePattern(request.at("pattern"));
  SPARSEFW_ASSIGN_OR_RETURN(const Preset preset,
                            ValueOf("preset", request.at("preset").get<std::string>(), kPresets));
  SolveOptions options = ResolveOptions({.preset = preset}, problem.pattern);
  options.threads = threads_;
  const Stopwatch watch;
  SPARSEFW_ASSIGN_OR_RETURN(const SolveResult result,
                            Solve(problem, options, backend_, nullptr, nullptr));
  return Json{{"seconds", watch.seconds()},
              {"load_seconds", absl::ToDoubleSeconds(result.load_time)},
              {"iterations", result.iterations},
              {"stop_cause", NameOf(result.stop_cause)},
              {"full_loss", result.full_loss},
              {"warm_start_loss", result.warm_start_loss},
              {"relaxed_loss", result.relaxed_loss},
              {"final_loss", result.final_loss},
              {"lower_bound", result.lower_bound},
              {"reconstructed_loss", result.reconstructed_loss},
              {"swaps", result.swaps}};
}

absl::StatusOr<Json> DeviceMeasures::Gram(const Json& request) {
  const int64_t cols = request.value("cols", int64_t{4096});
  const int64_t tokens = request.value("tokens", int64_t{8192});
  const int64_t repetitions = request.value("repetitions", int64_t{5});
  const std::string dtype = request.value("dtype", "bf16");
  const Matrix<float> f32 = GaussianMatrix(tokens, cols, 3);
  Matrix<BFloat16> bf16;
  Matrix<Half> f16;
  ConstMatrixView chunk = f32.view();
  if (dtype == "bf16") {
    bf16 = Matrix<BFloat16>(tokens, cols);
    std::transform(f32.data(), f32.data() + f32.size(), bf16.data(), ToBFloat16);
    chunk = bf16.view();
  } else if (dtype == "fp16") {
    f16 = Matrix<Half>(tokens, cols);
    std::transform(f32.data(), f32.data() + f32.size(), f16.data(), ToHalf);
    chunk = f16.view();
  } else if (dtype != "fp32") {
    return Unknown("dtype", dtype, "fp32, bf16 or fp16");
  }
  SPARSEFW_ASSIGN_OR_RETURN(const auto sum, backend_.CreateGramAccumulator(cols, threads_));
  std::vector<double> row(static_cast<size_t>(cols));
  SPARSEFW_RETURN_IF_ERROR(sum->Add(chunk));  // warm-up
  SPARSEFW_RETURN_IF_ERROR(sum->CopyRows(0, 1, row.data()));
  const Stopwatch watch;
  for (int64_t i = 0; i < repetitions; ++i) SPARSEFW_RETURN_IF_ERROR(sum->Add(chunk));
  // Waits for everything that is still under way.
  SPARSEFW_RETURN_IF_ERROR(sum->CopyRows(0, 1, row.data()));
  const double seconds = watch.seconds() / static_cast<double>(repetitions);
  // The sum of squares of its tokens' first values, which are known.
  double expected = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    float value = 0;
    ConvertToFloat(chunk.row_bytes(token), chunk.dtype(), 1, &value);
    expected += static_cast<double>(value) * static_cast<double>(value);
  }
  expected *= static_cast<double>(repetitions + 1);
  return Json{{"seconds", seconds}, {"relative_error", std::abs(row[0] / expected - 1)}};
}

}  // namespace sparsefw::bench
