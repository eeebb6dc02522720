// SparseFW as the paper writes it down, in float64, every product from scratch.
//
//   E_t = D_t G,  D_t = W.(1 - M_t)                 L(M_t) = <D_t, E_t>
//   S_t = W.E_t = -grad L(M_t) / 2
//   V_t = argmax <S_t, V>   over masks of the free coordinates       (LMO)
//   g_t = 2 <S_t, V_t - M_t>                                         (gap)
//   M_{t+1} = (1 - eta_t) M_t + eta_t V_t
//
// Source: "Don't Be Greedy, Just Relax! Pruning LLMs via Frank-Wolfe",
// Algorithm 2; deviations as in solver.h.
//
// No recurrences, no thresholds carried over, no fused passes: every line can
// be compared with the formulas above. The other engines are tested against it.
#ifndef SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_ENGINE_H_
#define SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"

namespace sparsefw {

// Memory: 8*d_in^2 + some 60*d_out*d_in bytes.
// The stop signal is looked at before every row and every 2^16 steps of a
// selection; a Step that is stopped leaves the iterate of its last complete step.
class ReferenceEngine final : public Engine {
 public:
  // past_deadline: as that of ParallelContext; it ends a method as the stop
  // signal does. For tests, which count how often it is called.
  explicit ReferenceEngine(const EngineOptions& options, std::function<bool()> past_deadline = {})
      : context_(options.threads, options.stop, std::move(past_deadline)) {}

  absl::Status Load(const EngineProblem& problem) override;
  absl::StatusOr<StepStats> Step(const StepRequest& request) override;
  absl::StatusOr<RoundedMask> Round() override;
  absl::StatusOr<double> Loss(const Mask& mask) override;
  absl::StatusOr<RefinedMask> Refine(const Mask& start, const RefineRequest& request) override;
  absl::StatusOr<Matrix<float>> Reconstruct(const Mask& mask,
                                            const ReconstructRequest& request) override;
  absl::StatusOr<JointResult> SearchJointly(const Mask& start,
                                            const JointRequest& request) override;
  absl::StatusOr<double> LossOfWeights(const Matrix<float>& weights) override;
  absl::Status SaveIteration(StateWriter& writer) override;
  absl::Status RestoreIteration(StateReader& reader) override;

 private:
  // Loss, gap and vertex of the iterate M_t.
  struct Evaluation {
    double loss = 0;
    double gap = 0;
    Mask vertex;  // V_t, the fixed set included
  };

  // The scalars of the iteration, as they are saved.
  struct Counters {
    int64_t iteration = 0;
    int64_t toggled = 0;  // over all steps
    double step_size = 0;
    double lower_bound = -std::numeric_limits<double>::infinity();
  };
  static_assert(sizeof(Counters) == 4 * sizeof(int64_t));

  absl::Status Evaluate();
  absl::Status TakeStep(StepRule rule);
  // <D, D G> and D G; the product of the line search too.
  double Rounding(const Matrix<float>& weights) const;  // as LosesLess has it
  absl::StatusOr<Matrix<double>> TimesGram(const Matrix<double>& left) const;
  absl::StatusOr<Matrix<double>> Scores(const Matrix<double>& mask, double& loss) const;
  // Sets in `mask` what every group selects of its free coordinates that are
  // eligible: as many as it has capacity for, in the order of `before`.
  template <typename Eligible, typename Before>
  absl::Status SelectInGroups(const Eligible& eligible, const Before& before, Mask& mask) const;
  absl::StatusOr<Mask> BestVertex(const Matrix<double>& scores) const;
  absl::StatusOr<double> StepSize(StepRule rule) const;
  bool Ended(const std::function<bool()>& out_of_time) const {
    return context_.stopped() || (out_of_time && out_of_time());
  }

  // The groups are consecutive runs of the row-major coordinates, all of one size.
  int64_t group_size() const { return groups_.whole_matrix ? mask_.size() : groups_.group_cols; }
  int64_t group_count() const { return mask_.size() / group_size(); }
  bool IsFixed(int64_t index) const { return fixed_.Get(index / cols(), index % cols()); }
  int64_t cols() const { return mask_.cols(); }

  const ParallelContext context_;

  DType dtype_ = DType::kF32;  // of the given weights
  DType gram_dtype_ = DType::kF32;
  Matrix<double> weights_;
  Matrix<double> gram_;     // (G + G^T) / 2
  Matrix<float> saliency_;  // orders entries of M_t that are equal
  Mask fixed_;
  Groups groups_;
  std::vector<int64_t> free_capacity_;  // of every group

  Matrix<double> mask_;   // M_t, the fixed set included
  Mask previous_vertex_;  // V_{t-1}, the fixed set included; at first the warm start
  Counters counters_;
  std::optional<Evaluation> evaluation_;  // of mask_; empty until asked for
};

// The reference backend: dense, float64, obvious. The oracle of the others. Lives as long as the
// program.
const Backend& ReferenceBackend();

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_ENGINE_H_
