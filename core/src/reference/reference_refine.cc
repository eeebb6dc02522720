#include <algorithm>
#include <limits>
#include <vector>

#include "core/src/frank_wolfe/swap_tolerance.h"
#include "core/src/reference/reference_searches.h"

namespace sparsefw {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A weight and what moving it would change.
struct Single {
  double change = kInfinity;
  int64_t col = -1;
};

// The moves within one row, and with it.
struct RowMoves {
  double change = kInfinity;  // of exchanging p and q, both of this row
  int64_t p = -1;
  int64_t q = -1;
  Single out;  // the kept weight that costs least to prune
  Single in;   // the pruned one that gains most when restored
};

struct Exchange {
  double change = kInfinity;
  double excess = kInfinity;  // change and tolerances: improves below 0
  int64_t p_row = -1;
  int64_t p = -1;
  int64_t q_row = -1;
  int64_t q = -1;
};

class Refinement {
 public:
  Refinement(const Matrix<double>& weights, const Matrix<double>& gram, const Groups& groups,
             const Mask& start, const Mask& locked)
      : weights_(weights), gram_(gram), groups_(groups), locked_(locked), mask_(start) {}

  RefinedMask Run(absl::FunctionRef<bool()> stop) {
    RefinedMask result;
    bool ended = !Prepare(stop);
    while (!ended && !stop()) {
      const Exchange best = BestExchange();
      if (!(best.excess < 0)) {
        result.converged = true;
        break;
      }
      mask_.Set(best.p_row, best.p, false);
      mask_.Set(best.q_row, best.q, true);
      ++result.swaps;
      result.loss_change += best.change;
      At(moves_, best.p_row) = MovesOf(best.p_row, ProductOf(best.p_row));
      if (best.q_row == best.p_row) continue;
      ended = stop();
      if (!ended) At(moves_, best.q_row) = MovesOf(best.q_row, ProductOf(best.q_row));
    }
    result.mask = mask_;
    return result;
  }

 private:
  template <typename T>
  static T& At(std::vector<T>& values, int64_t index) {
    return values[static_cast<size_t>(index)];
  }
  template <typename T>
  static const T& At(const std::vector<T>& values, int64_t index) {
    return values[static_cast<size_t>(index)];
  }

  // The tolerances and moves of all rows; false where `stop` ended it.
  bool Prepare(absl::FunctionRef<bool()> stop) {
    for (int64_t row = 0; row < mask_.rows(); ++row) {
      if (stop()) return false;
      const std::vector<double> product = ProductOf(row);
      tolerance_.push_back(ToleranceOf(row, product));
      moves_.push_back(MovesOf(row, product));
    }
    return true;
  }

  // E = D G of one row.
  std::vector<double> ProductOf(int64_t row) const {
    std::vector<double> product(static_cast<size_t>(mask_.cols()));
    for (int64_t j = 0; j < mask_.cols(); ++j) {
      if (mask_.Get(row, j)) continue;
      for (int64_t col = 0; col < mask_.cols(); ++col) {
        At(product, col) += weights_(row, j) * gram_(j, col);
      }
    }
    return product;
  }

  double ToleranceOf(int64_t row, const std::vector<double>& product) const {
    double loss = 0;
    double squares = 0;
    for (int64_t col = 0; col < mask_.cols(); ++col) {
      const double weight = weights_(row, col);
      squares += weight * weight * gram_(col, col);
      if (!mask_.Get(row, col)) loss += weight * At(product, col);
    }
    return kSwapTolerance * std::max(0.0, loss) + kSwapNoise * squares;
  }

  RowMoves MovesOf(int64_t row, const std::vector<double>& product) const {
    const auto change_of = [&](int64_t col, double sign) {
      const double weight = weights_(row, col);
      return sign * 2 * weight * At(product, col) + weight * weight * gram_(col, col);
    };
    RowMoves moves;
    for (int64_t p = 0; p < mask_.cols(); ++p) {
      if (!mask_.Get(row, p) || locked_.Get(row, p)) continue;
      const double out = change_of(p, 1);
      if (out < moves.out.change) moves.out = {out, p};
      const int64_t first = p / groups_.group_cols * groups_.group_cols;
      for (int64_t q = first + groups_.group_cols - 1; q >= first; --q) {
        if (mask_.Get(row, q)) continue;
        const double change =
            out + change_of(q, -1) - 2 * weights_(row, p) * weights_(row, q) * gram_(p, q);
        if (change < moves.change) {
          moves.change = change;
          moves.p = p;
          moves.q = q;
        }
      }
    }
    for (int64_t q = mask_.cols() - 1; q >= 0; --q) {
      if (mask_.Get(row, q)) continue;
      const double in = change_of(q, -1);
      if (in < moves.in.change) moves.in = {in, q};
    }
    return moves;
  }

  Exchange BestExchange() {
    Exchange best;
    for (int64_t row = 0; row < mask_.rows(); ++row) {
      const RowMoves& moves = At(moves_, row);
      const Exchange within = {moves.change, moves.change + At(tolerance_, row), row, moves.p, row,
                               moves.q};
      if (within.excess < best.excess) best = within;
    }
    if (!groups_.whole_matrix) return best;
    const int64_t most_useful = MostUseful(/*other_than=*/-1);
    const int64_t next_useful = MostUseful(/*other_than=*/most_useful);
    for (int64_t p_row = 0; p_row < mask_.rows(); ++p_row) {
      const int64_t q_row = p_row == most_useful ? next_useful : most_useful;
      if (q_row < 0) continue;
      const Single& out = At(moves_, p_row).out;
      const Single& in = At(moves_, q_row).in;
      const double change = out.change + in.change;
      const double excess = change + At(tolerance_, p_row) + At(tolerance_, q_row);
      if (excess < best.excess) best = {change, excess, p_row, out.col, q_row, in.col};
    }
    return best;
  }

  // The row, not `other_than`, whose best q gains most; -1 where there is none.
  int64_t MostUseful(int64_t other_than) {
    int64_t best = -1;
    double least = kInfinity;
    for (int64_t row = mask_.rows() - 1; row >= 0; --row) {
      const double value = At(moves_, row).in.change + At(tolerance_, row);
      if (row != other_than && value < least) {
        least = value;
        best = row;
      }
    }
    return best;
  }

  const Matrix<double>& weights_;
  const Matrix<double>& gram_;
  const Groups groups_;
  const Mask& locked_;
  Mask mask_;
  std::vector<double> tolerance_;  // of every row
  std::vector<RowMoves> moves_;    // of every row
};

}  // namespace

RefinedMask ReferenceRefine(const Matrix<double>& weights, const Matrix<double>& gram,
                            const Groups& groups, const Mask& start, const Mask& locked,
                            absl::FunctionRef<bool()> stop) {
  return Refinement(weights, gram, groups, start, locked).Run(stop);
}

}  // namespace sparsefw
