// An engine and a clock that do what a test says, and Solve run on them.
#ifndef SPARSEFW_TESTS_CORE_SOLVER_SCRIPTED_ENGINE_H_
#define SPARSEFW_TESTS_CORE_SOLVER_SCRIPTED_ENGINE_H_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/src/solver/solve_run.h"
#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/solver.h"

namespace sparsefw::testing {

// A script of faults: every engine call is counted and takes its time.
struct Script {
  std::function<void(const std::string& call)> on_call = [](const std::string&) {};
  std::map<std::string, absl::Duration> duration;
  absl::Duration step_duration;
  double rounded_loss = 50;         // of every mask but the warm one, whose loss is 100
  std::optional<double> near_loss;  // what LossNear says; empty: it asks Loss
  double refined_loss = 45;
  double refined_change = -5;  // what Refine says it was
  double weights_loss = 20;    // after reconstruction
  RefineRequest refine_request;
  double relaxed_loss = 40;
  double lower_bound = 10;
  int64_t gap_at = -1;  // reached_gap from this iteration on

  absl::Status error;  // of every call from now on

  absl::Time now = absl::FromUnixSeconds(1000);
  StopSignal stop;
  EngineOptions engine_options;  // of the last engine that was made
  std::vector<std::string> calls;
  std::vector<int64_t> batches;
  std::vector<double> known_losses;  // given to LossNear
};

class ScriptedEngine final : public Engine {
 public:
  explicit ScriptedEngine(Script& script) : script_(script) {}

  absl::Status Load(const EngineProblem& problem) override {
    warm_ = *problem.warm;
    return Call("load");
  }

  absl::StatusOr<StepStats> Step(const StepRequest& request) override {
    if (absl::Status status = Call(request.count == 0 ? "evaluate" : "step"); !status.ok()) {
      return status;
    }
    const int64_t end = iteration_ + request.count;
    iteration_ = script_.gap_at >= 0 ? std::min(end, script_.gap_at) : end;
    script_.now += static_cast<double>(request.count) * script_.step_duration;
    if (request.count > 0) script_.batches.push_back(request.count);
    return StepStats{.iteration = iteration_,
                     .relaxed_loss = script_.relaxed_loss,
                     .gap = 30,
                     .lower_bound = script_.lower_bound,
                     .reached_gap = iteration_ == script_.gap_at};
  }

  absl::StatusOr<RoundedMask> Round() override {
    (void)Call("round");
    ++rounds_;  // not the warm start, and another mask every time
    Mask mask(warm_.rows(), warm_.cols());
    for (int64_t col = 0; col < warm_.cols(); ++col) {
      mask.Set(0, col, !warm_.Get(0, col) && (col + rounds_) % 5 != 0);
    }
    return RoundedMask{std::move(mask), 0.25};
  }

  absl::StatusOr<double> Loss(const Mask& mask) override {
    const bool full = mask.CountKept() == 0;
    const bool warm = mask == warm_;
    if (absl::Status status = Call(full   ? "full_loss"
                                   : warm ? "warm_loss"
                                          : "loss");
        !status.ok()) {
      return status;
    }
    if (full || warm) return full ? 1000 : 100;
    return mask == refined_ ? script_.refined_loss : script_.rounded_loss;
  }

  absl::StatusOr<double> LossNear(const Mask& mask, const KnownLoss& known) override {
    if (!script_.near_loss.has_value()) return Loss(mask);
    if (absl::Status status = Call("loss_near"); !status.ok()) return status;
    script_.known_losses.push_back(known.loss);
    return *script_.near_loss;
  }

  // Keeps the first columns, whatever the start.
  absl::StatusOr<RefinedMask> Refine(const Mask& start, const RefineRequest& request) override {
    script_.refine_request = request;
    const bool stopped = !Call("refine").ok();
    refined_ = Mask(start.rows(), start.cols());
    for (int64_t col = 0; col < start.CountKept(); ++col) refined_.Set(0, col, true);
    const bool cut_short = stopped || (request.out_of_time && request.out_of_time());
    return RefinedMask{refined_, 7, script_.refined_change, !cut_short};
  }

  absl::StatusOr<Matrix<float>> Reconstruct(const Mask& mask,
                                            const ReconstructRequest& request) override {
    if (absl::Status status = Call("reconstruct"); !status.ok()) return status;
    if (request.out_of_time) (void)request.out_of_time();
    Matrix<float> weights(mask.rows(), mask.cols());
    for (int64_t col = 0; col < mask.cols(); ++col) weights(0, col) = mask.Get(0, col) ? 5 : 0;
    return weights;
  }

  absl::StatusOr<double> LossOfWeights(const Matrix<float>&) override {
    if (absl::Status status = Call("weights_loss"); !status.ok()) return status;
    return script_.weights_loss;
  }

 private:
  absl::Status Call(const std::string& call) {
    script_.calls.push_back(call);
    script_.on_call(call);
    script_.now += script_.duration[call];
    if (!script_.error.ok()) return script_.error;
    return script_.stop.requested() ? absl::CancelledError("scripted") : absl::OkStatus();
  }

  Script& script_;
  Mask warm_;
  Mask refined_;
  int64_t iteration_ = 0;
  int64_t rounds_ = 0;
};

class ScriptedBackend final : public Backend {
 public:
  explicit ScriptedBackend(Script& script) : script_(script) {}
  std::string_view name() const override { return "scripted"; }
  DeviceDescription Describe() const override { return {}; }
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
      const EngineOptions& options) const override {
    script_.engine_options = options;
    return std::make_unique<ScriptedEngine>(script_);
  }
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(int64_t,
                                                                         int) const override {
    return absl::UnimplementedError("not scripted");
  }
  int64_t EstimateHostBytes(int64_t, int64_t, const MemoryRequest&) const override { return 0; }

 private:
  Script& script_;
};

class Reports final : public SolveObserver {
 public:
  void OnReport(const ProgressReport& report) override { reports.push_back(report); }
  std::vector<ProgressReport> reports;
};

// A layer of one row, half of which is kept.
class ScriptedSolveTest : public ::testing::Test {
 protected:
  ScriptedSolveTest() {
    for (int64_t col = 0; col < 20; ++col) {
      weights_(0, col) = static_cast<float>(col + 1);
      gram_(col, col) = 1;
    }
    problem_.weights = weights_.view();
    problem_.gram = gram_.view();
    problem_.pattern = Pattern::PerRow(0.5);
    options_.iterations = 1000;
    options_.threads = 1;
  }

  absl::StatusOr<SolveResult> Run() {
    LayerCache cache;
    return sparsefw::RunSolve({.problem = problem_,
                               .options = options_,
                               .backend = backend_,
                               .cache = cache,
                               .observer = &observer_,
                               .stop = &script_.stop,
                               .now = [this] { return script_.now; }});
  }

  absl::StatusOr<SolveResult> RunSolve() {
    return Solve(problem_, options_, backend_, &observer_, &script_.stop);
  }

  void StopAt(const std::string& call, int nth = 1) {
    script_.on_call = [this, call, nth, count = 0](const std::string& name) mutable {
      if (name == call && ++count == nth) script_.stop.Request();
    };
  }

  Matrix<float> weights_{1, 20};
  Matrix<double> gram_{20, 20};
  Problem problem_;
  SolveOptions options_;
  Script script_;
  ScriptedBackend backend_{script_};
  Reports observer_;
};

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_CORE_SOLVER_SCRIPTED_ENGINE_H_
