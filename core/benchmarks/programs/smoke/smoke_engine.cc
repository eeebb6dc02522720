// The stages whose kernels only make sense together, by the engine, against the reference engine.
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/layers/layer_file.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "core/benchmarks/programs/smoke/smoke.h"
#include "sparsefw/gram.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

constexpr double kLossLimit = 1e-3;  // of float32 beside float64, on another path to as good a mask
constexpr double kSwapLimit = 0.03;  // engines end in different local optima
constexpr int64_t kIterations = 60;

struct Stages {
  double relaxed = 0, rounded = 0, refined = 0, reconstructed = 0;
};

absl::StatusOr<Stages> StagesOf(const Backend& backend, const EngineProblem& problem,
                                Precision precision) {
  Stages stages;
  SPARSEFW_ASSIGN_OR_RETURN(const auto engine, backend.CreateEngine({.precision = precision}));
  SPARSEFW_RETURN_IF_ERROR(engine->Load(problem));
  SPARSEFW_ASSIGN_OR_RETURN(const StepStats stats,
                            engine->Step({.count = kIterations, .rule = StepRule::kLineSearch}));
  stages.relaxed = stats.relaxed_loss;
  SPARSEFW_ASSIGN_OR_RETURN(const RoundedMask rounded, engine->Round());
  SPARSEFW_ASSIGN_OR_RETURN(stages.rounded, engine->Loss(rounded.mask));
  // The warm start is the same on both.
  SPARSEFW_ASSIGN_OR_RETURN(const double start, engine->Loss(*problem.warm));
  SPARSEFW_ASSIGN_OR_RETURN(const RefinedMask refined, engine->Refine(*problem.warm, {}));
  stages.refined = start + refined.loss_change;
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<float> weights, engine->Reconstruct(*problem.warm, {}));
  SPARSEFW_ASSIGN_OR_RETURN(stages.reconstructed, engine->LossOfWeights(weights));
  return stages;
}

void Beside(Smoke& smoke, const std::string& name, double actual, double expected, double limit) {
  const double error = std::abs(actual / expected - 1);
  smoke.Report(name, error <= limit,
               absl::StrFormat("%.9g, the reference engine has %.9g", actual, expected),
               {{"error", std::isfinite(error) ? error : 1e300}, {"limit", limit}});
}

// The trace of the sum is that of the squares of all values.
void GramSum(Smoke& smoke, const Backend& backend, int64_t cols) {
  smoke.Begin("Gram sum");
  const Matrix<float> tokens = GaussianMatrix(3 * cols, cols, 5);
  const auto sum = OrDie(backend.CreateGramAccumulator(cols, 1));
  OrDie(sum->Add(tokens.view()));
  const Matrix<double> gram = OrDie(sum->Snapshot());
  double expected = 0;
  double actual = 0;
  for (int64_t i = 0; i < cols; ++i) actual += gram(i, i);
  for (int64_t i = 0; i < tokens.size(); ++i) {
    expected += static_cast<double>(tokens.data()[i]) * static_cast<double>(tokens.data()[i]);
  }
  Beside(smoke, "trace of a Gram sum", actual, expected, 1e-5);
}

}  // namespace

void SmokeEngine(Smoke& smoke, const std::string& pattern, int64_t rows, int64_t cols) {
  const Backend* device = OrDie(FindBackend("cuda"));
  const SyntheticLayer made = OrDie(MakeSyntheticLayer(rows, cols, 20));
  const LayerFile layer = {nullptr, made.weights.view(), made.gram.view()};
  const StartingPoint start = MakeStartingPoint(layer, ParsePattern(pattern), 0.5);
  const EngineProblem problem = start.problem(layer);
  const Stages expected =
      OrDie(StagesOf(*OrDie(FindBackend("reference")), problem, Precision::kAuto));
  for (const auto& [precision, words] :
       {std::pair{Precision::kFloat64, "float64"}, std::pair{Precision::kFloat32, "float32"}}) {
    const std::string name = absl::StrFormat("%s %s ", pattern, words);
    smoke.Begin(name + "engine");
    const Stages actual = OrDie(StagesOf(*device, problem, precision));
    Beside(smoke, name + "relaxed loss", actual.relaxed, expected.relaxed, kLossLimit);
    Beside(smoke, name + "loss of the rounded mask", actual.rounded, expected.rounded,
           10 * kLossLimit);
    Beside(smoke, name + "loss after swaps", actual.refined, expected.refined, kSwapLimit);
    Beside(smoke, name + "loss after reconstruction", actual.reconstructed, expected.reconstructed,
           kLossLimit);
  }
  GramSum(smoke, *device, cols);
}

}  // namespace sparsefw::bench
