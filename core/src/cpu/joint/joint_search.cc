#include "core/src/cpu/joint/joint_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/src/cpu/joint/row_search.h"
#include "core/src/cpu/linalg/float64_product.h"
#include "core/src/cpu/reconstruct/reconstruct.h"
#include "core/src/frank_wolfe/swap_tolerance.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "sparsefw/mutex.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// In float32 the gains themselves are good to a few parts in 10^5.
template <typename Real>
constexpr double kTolerance = sizeof(Real) == sizeof(float) ? 10 * kJointTolerance
                                                            : kJointTolerance;

size_t Index(int64_t index) { return static_cast<size_t>(index); }

// Entries near 1 at most, so that squares of sums of products fit float32.
Scale NearOne(Scale scale) {
  scale.weights_exponent -= Scale::kTargetExponent;
  scale.gram_exponent -= Scale::kTargetExponent;
  return scale;
}

// One workspace a thread; a loop's threads come and go.
template <typename Real>
class Workspaces {
 public:
  std::unique_ptr<RowSearch<Real>> Take() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<RowSearch<Real>> taken = std::move(idle_.back());
    idle_.pop_back();
    return taken;
  }
  void Return(std::unique_ptr<RowSearch<Real>> search) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(search));
  }
  void Clear() {
    const MutexLock lock(mutex_);
    idle_.clear();
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<RowSearch<Real>>> idle_ ABSL_GUARDED_BY(mutex_);
};

template <typename Real>
class JointSearch {
 public:
  JointSearch(const EngineProblem& problem, const Scale& scale, const Mask& start,
              const JointRequest& request, const ParallelContext& context)
      : problem_(problem),
        given_scale_(scale),
        scale_(NearOne(scale)),
        start_(start),
        request_(request),
        context_(context),
        groups_(GroupsOf(problem.pattern, start.rows(), start.cols())),
        budget_(context, request.out_of_time) {}

  absl::StatusOr<JointResult> Run() {
    result_.mask = start_;
    result_.weights = CopyOf(*request_.weights);
    const absl::Status status = Prepare();
    if (absl::IsCancelled(status)) {
      result_.loss = std::numeric_limits<double>::infinity();  // nothing was compared
      return std::move(result_);
    }
    SPARSEFW_RETURN_IF_ERROR(status);
    SearchRows();
    workspaces_.Clear();
    SPARSEFW_RETURN_IF_ERROR(SolveWeights());
    SPARSEFW_RETURN_IF_ERROR(Judge());
    for (const RowState& state : states_) result_.exchanges += state.exchanges;
    result_.converged = converged_ && !budget_.Spent();
    return std::move(result_);
  }

 private:
  struct RowState {
    double start_loss = 0;  // of the weights given
    double loss = 0;        // L*, once searched
    double energy = 0;
    double tolerance = 0;
    int64_t exchanges = 0;
    bool searched = false;
  };

  static Matrix<float> CopyOf(const Matrix<float>& from) {
    Matrix<float> to(from.rows(), from.cols());
    std::copy_n(from.data(), from.size(), to.data());
    return to;
  }
  int64_t rows() const { return start_.rows(); }
  int64_t cols() const { return start_.cols(); }
  double Weight(int64_t row, int64_t col) const {
    return static_cast<double>(layer_.weights(row, col));
  }

  absl::Status Prepare() {
    SPARSEFW_ASSIGN_OR_RETURN(layer_,
                              LoadScaled<Real>(problem_.weights, problem_.gram, scale_, context_));
    states_.resize(Index(rows()));
    products_ = Matrix<double>(rows(), layer_.stride());
    SPARSEFW_RETURN_IF_ERROR(Losses(*request_.weights, [&](int64_t row, double loss) {
      states_[Index(row)].start_loss = loss;
    }));
    // What a column outside would gain at least, from the residuals that these needed.
    bounds_ = Matrix<float>(rows(), cols());
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t j = 0; j < cols(); ++j) {
        const double residual = products_(row, j);
        const auto diagonal = static_cast<double>(layer_.gram(j, j));
        bounds_(row, j) = diagonal > 0 ? static_cast<float>(residual * residual / diagonal) : 0.0F;
      }
    }
    Damp();
    SPARSEFW_RETURN_IF_ERROR(Float64Product(
        layer_,
        [&](int64_t row, int64_t first, int64_t count, double* out) {
          for (int64_t i = 0; i < count; ++i) out[i] = Weight(row, first + i);
        },
        products_, context_));
    for (int64_t row = 0; row < rows(); ++row) {
      RowState& state = states_[Index(row)];
      double squares = 0;
      for (int64_t j = 0; j < cols(); ++j) {
        const double weight = Weight(row, j);
        state.energy += weight * products_(row, j);
        squares += weight * weight * static_cast<double>(layer_.gram(j, j));
      }
      state.tolerance = kTolerance<Real> * std::max(0.0, state.start_loss) + kSwapNoise * squares;
    }
    return absl::OkStatus();
  }

  // G becomes H, and back.
  void Damp() {
    for (int64_t j = 0; j < cols(); ++j) diagonal_.push_back(layer_.gram(j, j));
    AddDamping(layer_, request_.options.damping);
  }
  void RemoveDamping() {
    for (int64_t j = 0; j < cols(); ++j) layer_.gram(j, j) = diagonal_[Index(j)];
  }

  // ||(W - weights) X||^2 of every row, in the scale of the layer, whose gram is G now.
  // Overwrites products_.
  template <typename Take>
  absl::Status Losses(const Matrix<float>& weights, const Take& take) {
    const double factor = scale_.weights_factor();
    const auto missing = [&](int64_t row, int64_t col) {
      return Weight(row, col) - static_cast<double>(weights(row, col)) * factor;
    };
    SPARSEFW_RETURN_IF_ERROR(Float64Product(
        layer_,
        [&](int64_t row, int64_t first, int64_t count, double* out) {
          for (int64_t i = 0; i < count; ++i) out[i] = missing(row, first + i);
        },
        products_, context_));
    for (int64_t row = 0; row < rows(); ++row) {
      double loss = 0;
      for (int64_t j = 0; j < cols(); ++j) loss += missing(row, j) * products_(row, j);
      take(row, loss);
    }
    return absl::OkStatus();
  }

  JointRow RowOf(int64_t row, const uint8_t* kept, const uint8_t* fixed) const {
    const RowState& state = states_[Index(row)];
    return {.products = products_.row(row),
            .energy = state.energy,
            .tolerance = state.tolerance,
            .bounds = bounds_.row(row),
            .kept = kept,
            .fixed = fixed,
            .excluded = ExcludedOf(kept)};
  }

  // Where the whole matrix is one group, rows differ in how many columns are outside: of each
  // the same share of those.
  double ExcludedOf(const uint8_t* kept) const {
    const double excluded = request_.options.excluded;
    if (!groups_.whole_matrix) return excluded;
    const auto all = static_cast<double>(rows() * cols());
    const double outside = all - static_cast<double>(groups_.total_kept);
    if (!(outside > 0)) return excluded;
    const auto kept_here = static_cast<double>(std::count(kept, kept + cols(), uint8_t{1}));
    const double here = 1 - kept_here / static_cast<double>(cols());
    return std::min(1.0, excluded * here * all / outside);
  }

  std::optional<JointRowResult> SearchRow(int64_t row, const std::vector<uint8_t>& kept) {
    if (budget_.Spent()) return std::nullopt;
    std::vector<uint8_t> fixed(Index(cols()));
    for (int64_t j = 0; j < cols(); ++j) fixed[Index(j)] = request_.fixed->Get(row, j) ? 1 : 0;
    std::unique_ptr<RowSearch<Real>> search = workspaces_.Take();
    if (search == nullptr) {
      search = std::make_unique<RowSearch<Real>>(layer_.gram, cols(), groups_, budget_);
    }
    JointRowResult found = search->Run(RowOf(row, kept.data(), fixed.data()));
    workspaces_.Return(std::move(search));
    return found;
  }

  std::vector<uint8_t> KeptOf(int64_t row) const {
    std::vector<uint8_t> kept(Index(cols()));
    for (int64_t j = 0; j < cols(); ++j) kept[Index(j)] = result_.mask.Get(row, j) ? 1 : 0;
    return kept;
  }

  // Rows of the result: from distinct threads distinct ones.
  void Take(int64_t row, JointRowResult found) {
    RowState& state = states_[Index(row)];
    const DType dtype = problem_.weights.dtype();
    for (int64_t j = 0; j < cols(); ++j) {
      const bool kept = found.kept[Index(j)] != 0;
      result_.mask.Set(row, j, kept);
      const double weight =
          std::ldexp(static_cast<double>(found.weights[Index(j)]), -scale_.weights_exponent);
      result_.weights(row, j) = kept ? RoundedTo(dtype, weight) : 0;
    }
    state.loss = found.loss;
    state.exchanges += found.exchanges;
    state.searched = true;
  }

  // Each row by itself: where one budget serves the matrix, rows keep as many weights as they had.
  void SearchRows() {
    std::vector<uint8_t> converged(Index(rows()));
    const absl::Status status = context_.ForEach(rows(), [&](int64_t row) {
      std::optional<JointRowResult> found = SearchRow(row, KeptOf(row));
      if (!found.has_value()) return;
      converged[Index(row)] = found->converged ? 1 : 0;
      Take(row, *std::move(found));
    });
    converged_ =
        status.ok() && std::all_of(converged.begin(), converged.end(), [](auto c) { return c; });
  }

  // More exactly than in the tableau. Without time those of the tableau stand. Losses are of G
  // itself from here on.
  absl::Status SolveWeights() {
    if (context_.stopped()) return absl::OkStatus();
    RemoveDamping();
    absl::StatusOr<Matrix<float>> solved =
        SolveOnMask<Real>(problem_, given_scale_, result_.mask, result_.weights,
                          request_.options.damping, request_.solving_out_of_time, context_);
    if (absl::IsCancelled(solved.status())) return absl::OkStatus();
    SPARSEFW_RETURN_IF_ERROR(solved.status());
    result_.weights = *std::move(solved);
    return absl::OkStatus();
  }

  // Which rows are taken, by what they lose.
  absl::Status Judge() {
    // Where it cannot be found any more, L* is an upper estimate: damping adds to it.
    const absl::Status status = context_.stopped()
                                    ? absl::CancelledError("")
                                    : Losses(result_.weights, [&](int64_t row, double loss) {
                                        states_[Index(row)].loss = loss;
                                      });
    if (!status.ok() && !absl::IsCancelled(status)) return status;
    double found = 0;
    for (int64_t row = 0; row < rows(); ++row) {
      RowState& state = states_[Index(row)];
      // Written so that NaN, where a weight left the range of its dtype, is refused.
      const bool better = state.searched && state.loss < (1 - kRowGuard) * state.start_loss;
      if (!better) Revert(row);
      found += state.loss;
    }
    result_.loss = scale_.Unscaled(found);
    return absl::OkStatus();
  }

  void Revert(int64_t row) {
    std::copy_n(start_.row(row), start_.row_bytes(), result_.mask.row(row));
    std::copy_n(request_.weights->row(row), cols(), result_.weights.row(row));
    states_[Index(row)].loss = states_[Index(row)].start_loss;
    states_[Index(row)].exchanges = 0;
  }

  const EngineProblem& problem_;
  const Scale given_scale_;
  const Scale scale_;
  const Mask& start_;
  const JointRequest& request_;
  const ParallelContext& context_;
  const Groups groups_;
  SwapBudget budget_;
  ScaledLayer<Real> layer_;     // with the damping on the diagonal of its gram
  std::vector<Real> diagonal_;  // without it
  Matrix<double> products_;     // [rows, stride]: b = wH
  Matrix<float> bounds_;        // [rows, cols]: gains of columns outside, at least
  std::vector<RowState> states_;
  Workspaces<Real> workspaces_;
  bool converged_ = false;
  JointResult result_;
};

}  // namespace

template <typename Real>
absl::StatusOr<JointResult> SearchJointly(const EngineProblem& problem, const Scale& scale,
                                          const Mask& start, const JointRequest& request,
                                          const ParallelContext& context) {
  return JointSearch<Real>(problem, scale, start, request, context).Run();
}

template <typename Real>
int64_t JointSearchBytes(int64_t rows, int64_t cols, int threads) {
  const int64_t stride = (cols + 63) / 64 * 64;
  constexpr auto kSize = static_cast<int64_t>(sizeof(Real));
  const int64_t layer = kSize * (rows + cols) * stride;
  const int64_t searching = threads * TableauBytes<Real>(cols) + rows * 5 * cols;
  return layer + 8 * rows * stride + 2 * 4 * rows * cols + 256 * rows +
         std::max({searching, Float64ProductBytes(rows, cols), ReconstructBytes<Real>(rows, cols)});
}

template absl::StatusOr<JointResult> SearchJointly<float>(const EngineProblem&, const Scale&,
                                                          const Mask&, const JointRequest&,
                                                          const ParallelContext&);
template absl::StatusOr<JointResult> SearchJointly<double>(const EngineProblem&, const Scale&,
                                                           const Mask&, const JointRequest&,
                                                           const ParallelContext&);
template int64_t JointSearchBytes<float>(int64_t, int64_t, int);
template int64_t JointSearchBytes<double>(int64_t, int64_t, int);

}  // namespace sparsefw::cpu
