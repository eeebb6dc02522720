// The iteration of ALPS and the steps on its support: sparsefw/alps.h.
#ifndef SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_
#define SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/alps/penalty.h"
#include "core/src/alps/shifted_inverse.h"
#include "core/src/cpu/reconstruct/row_conjugate_gradients.h"
#include "core/src/linalg/blas.h"
#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/select/selection.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::alps {

// A layer in the units that make the diagonal of H^ 1; both may be wider than cols.
template <typename Real>
struct NormalisedLayer {
  const Matrix<double>& exact;  // H^ [cols, stride], for the inverses
  const Matrix<Real>& h;        // the same
  const Matrix<Real>& dense;    // B0 [rows, stride]
  int64_t rows = 0;
  int64_t cols = 0;
};

// Memory: six matrices like `dense`, three like `h` and a factor in float64. Lives for one call of
// Run.
template <typename Real>
class Alternation {
 public:
  // settled: that of penalty.h.
  Alternation(const NormalisedLayer<Real>& layer, const Pattern& pattern, double settled,
              const ParallelContext& context)
      : layer_(layer),
        pattern_(pattern),
        groups_(GroupsOf(pattern, layer.rows, layer.cols)),
        penalty_(groups_.total_kept, settled),
        context_(context),
        inverse_(layer.exact, layer.cols, context),
        y_(layer.rows, layer.dense.cols()),
        b_(layer.rows, layer.dense.cols()),
        d_(layer.rows, layer.dense.cols()),
        v_(layer.rows, layer.dense.cols()),
        right_(layer.rows, layer.dense.cols()),
        pruned_(layer.rows, layer.cols),
        checked_(layer.rows, layer.cols) {}

  // Errors: Cancelled, InvalidArgument (GRAM_NOT_POSITIVE_DEFINITE)
  absl::Status Run() {
    SPARSEFW_RETURN_IF_ERROR(Multiply(layer_.dense, layer_.h, y_));
    SPARSEFW_RETURN_IF_ERROR(SelectLargest([&](int64_t row, Real* out) {
      for (int64_t j = 0; j < layer_.cols; ++j) out[j] = std::fabs(layer_.dense(row, j));
    }));
    std::copy_n(pruned_.data(), pruned_.size(), checked_.data());
    SPARSEFW_RETURN_IF_ERROR(EachRow([&](int64_t row) {
      for (int64_t j = 0; j < layer_.cols; ++j) {
        d_(row, j) = Pruned(row, j) ? 0 : layer_.dense(row, j);
      }
    }));
    Matrix<Real> first(layer_.rows, d_.cols());
    std::copy_n(d_.data(), d_.size(), first.data());
    using Next = Penalty::Next;
    Next next = Next::kGoOn;
    while (iterations_ < kIterations && next != Next::kEnd) {
      SPARSEFW_RETURN_IF_ERROR(Iterate());
      ++iterations_;
      if (iterations_ % kCheckEvery == 0) next = Adapt();
      if (next == Next::kBeginAgain) {
        std::copy_n(first.data(), first.size(), d_.data());
        std::fill_n(v_.data(), v_.size(), Real(0));
        next = Next::kGoOn;
      }
    }
    return absl::OkStatus();
  }

  // After it, one of these: the steps of ALPS on the support; or so many of
  // cpu/reconstruct/row_conjugate_gradients.h, which get nearer.
  // Errors: Cancelled
  absl::Status StepsOnSupport() {
    // Conjugate gradients on B H^ = Y, all rows at once, from top(B).
    SPARSEFW_RETURN_IF_ERROR(TakeSupport());
    Matrix<Real>& residual = d_;
    Matrix<Real>& direction = v_;
    struct RowState {
      double squares = 0;  // of the residual
      double wanted = 0;   // where it is small enough
    };
    std::vector<RowState> rows(static_cast<size_t>(layer_.rows));
    SPARSEFW_RETURN_IF_ERROR(EachRow([&](int64_t row) {
      RowState& state = rows[static_cast<size_t>(row)];
      double start = 0;
      for (int64_t j = 0; j < layer_.cols; ++j) {
        const Real r = Pruned(row, j) ? 0 : y_(row, j) - right_(row, j);
        residual(row, j) = direction(row, j) = r;
        state.squares += Product(r, r);
        start += Pruned(row, j) ? 0 : Product(y_(row, j), y_(row, j));
      }
      state.wanted = kStepTolerance * kStepTolerance * start;
    }));
    for (int64_t step = 0; step < kSteps; ++step) {
      const bool done = std::all_of(rows.begin(), rows.end(), [](const RowState& state) {
        return state.squares <= state.wanted;
      });
      if (done) break;
      SPARSEFW_RETURN_IF_ERROR(Multiply(direction, layer_.h, right_));
      SPARSEFW_RETURN_IF_ERROR(EachRow([&](int64_t row) {
        RowState& state = rows[static_cast<size_t>(row)];
        double curvature = 0;
        for (int64_t j = 0; j < layer_.cols; ++j) {
          curvature += Product(direction(row, j), right_(row, j));
        }
        if (!(curvature > 0)) return;
        const auto alpha = static_cast<Real>(state.squares / curvature);
        double squares = 0;
        for (int64_t j = 0; j < layer_.cols; ++j) {
          if (Pruned(row, j)) continue;
          b_(row, j) += alpha * direction(row, j);
          residual(row, j) -= alpha * right_(row, j);
          squares += Product(residual(row, j), residual(row, j));
        }
        const auto beta = static_cast<Real>(squares / state.squares);
        state.squares = squares;
        for (int64_t j = 0; j < layer_.cols; ++j) {
          if (!Pruned(row, j)) direction(row, j) = residual(row, j) + beta * direction(row, j);
        }
      }));
    }
    return absl::OkStatus();
  }

  absl::Status PreconditionedSteps(int64_t steps) {
    d_ = {};
    v_ = {};
    SPARSEFW_RETURN_IF_ERROR(TakeSupport());
    Mask support(layer_.rows, layer_.cols);
    SPARSEFW_RETURN_IF_ERROR(EachRow([&](int64_t row) {
      for (int64_t j = 0; j < layer_.cols; ++j) {
        if (!Pruned(row, j)) support.Set(row, j, true);
        right_(row, j) = y_(row, j) - right_(row, j);
      }
    }));
    cpu::RowConjugateGradients<Real> gradients(layer_.h, support, 0, layer_.rows);
    SPARSEFW_RETURN_IF_ERROR(gradients.Solve(right_, {}, {.iterations = steps}, context_));
    return EachRow([&](int64_t row) {
      for (int64_t j = 0; j < layer_.cols; ++j) b_(row, j) += gradients.solution(row)[j];
    });
  }

  const Matrix<Real>& weights() const { return b_; }         // 0 where pruned
  const Matrix<uint8_t>& pruned() const { return pruned_; }  // [rows, cols]: 1 where pruned
  int64_t iterations() const { return iterations_; }

 private:
  absl::Status Iterate() {
    SPARSEFW_RETURN_IF_ERROR(inverse_.Shift(penalty_.rho()));
    const auto rho = static_cast<Real>(penalty_.rho());
    SPARSEFW_RETURN_IF_ERROR(EachRow([&](int64_t row) {
      for (int64_t j = 0; j < layer_.cols; ++j) {
        right_(row, j) = y_(row, j) - v_(row, j) + rho * d_(row, j);
      }
    }));
    SPARSEFW_RETURN_IF_ERROR(Multiply(right_, inverse_.inverse(), b_));
    SPARSEFW_RETURN_IF_ERROR(SelectLargest([&](int64_t row, Real* out) {
      for (int64_t j = 0; j < layer_.cols; ++j) {
        out[j] = std::fabs((v_(row, j) + rho * b_(row, j)) / rho);
      }
    }));
    return EachRow([&](int64_t row) {
      for (int64_t j = 0; j < layer_.cols; ++j) {
        const Real both = v_(row, j) + rho * b_(row, j);
        d_(row, j) = Pruned(row, j) ? 0 : both / rho;
        v_(row, j) += rho * (b_(row, j) - d_(row, j));
      }
    });
  }

  // Marks in pruned_ all but the largest magnitudes that `score` writes to a row.
  absl::Status SelectLargest(absl::FunctionRef<void(int64_t, Real*)> score) {
    if (pattern_.kind == Pattern::Kind::kUnstructured) {
      SPARSEFW_RETURN_IF_ERROR(EachRow([&](int64_t row) { score(row, right_.row(row)); }));
      const int64_t count = layer_.rows * layer_.cols - groups_.total_kept;
      return context_.Run([&] {
        MarkLowestOfMatrix(right_, layer_.cols, count, pruned_);
        return absl::OkStatus();
      });
    }
    return EachRow([&](int64_t row) {
      std::vector<Candidate<KeyOf<Real>>> scratch;
      score(row, right_.row(row));
      for (int64_t first = 0; first < layer_.cols; first += groups_.group_cols) {
        MarkLowest(right_.row(row) + first, groups_.group_cols,
                   groups_.group_cols - groups_.capacity, scratch, pruned_.row(row) + first);
      }
    });
  }

  Penalty::Next Adapt() {
    int64_t changed = 0;
    for (int64_t i = 0; i < pruned_.size(); ++i) {
      changed += pruned_.data()[i] != checked_.data()[i] ? 1 : 0;
    }
    std::copy_n(pruned_.data(), pruned_.size(), checked_.data());
    return penalty_.Adapt(iterations_, changed);
  }

  absl::Status TakeSupport() {
    SPARSEFW_RETURN_IF_ERROR(SelectLargest([&](int64_t row, Real* out) {
      for (int64_t j = 0; j < layer_.cols; ++j) out[j] = std::fabs(b_(row, j));
    }));
    SPARSEFW_RETURN_IF_ERROR(EachRow([&](int64_t row) {
      for (int64_t j = 0; j < layer_.cols; ++j) {
        if (Pruned(row, j)) b_(row, j) = 0;
      }
    }));
    return Multiply(b_, layer_.h, right_);
  }

  absl::Status Multiply(const Matrix<Real>& left, const Matrix<Real>& right,
                        Matrix<Real>& out) const {
    return Gemm<Real>({layer_.rows, layer_.cols, layer_.cols}, left, right, out, context_);
  }

  absl::Status EachRow(absl::FunctionRef<void(int64_t)> body) const {
    return context_.ForEachRow({layer_.rows, RowGrain(layer_.cols)}, body);
  }

  bool Pruned(int64_t row, int64_t col) const { return pruned_(row, col) != 0; }
  static double Product(Real a, Real b) { return static_cast<double>(a) * static_cast<double>(b); }

  const NormalisedLayer<Real> layer_;
  const Pattern pattern_;
  const Groups groups_;
  Penalty penalty_;
  const ParallelContext& context_;
  ShiftedInverse<Real> inverse_;
  Matrix<Real> y_;
  Matrix<Real> b_;
  Matrix<Real> d_;
  Matrix<Real> v_;
  Matrix<Real> right_;  // Y - V + rho D; scores of a selection
  Matrix<uint8_t> pruned_;
  Matrix<uint8_t> checked_;  // pruned_ at the last check
  int64_t iterations_ = 0;
};

}  // namespace sparsefw::alps

#endif  // SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_
