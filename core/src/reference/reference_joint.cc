#include "core/src/reference/reference_joint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A pivot below this part of its diagonal is rounding: the column cannot be swept in.
constexpr double kPivotFloor = 1e-11;

struct Single {
  double change = kInfinity;
  int64_t col = -1;
};

struct Exchange {
  double gain = 0;
  int64_t q = -1;
  int64_t p = -1;
};

// [H b; b^T c] of one row, swept on its kept columns. sparsefw/joint.h has the formulas.
class RowTableau {
 public:
  RowTableau(const Matrix<double>& damped, const double* weights, const uint8_t* kept)
      : size_(damped.rows()), a_(size_ + 1, size_ + 1), inside_(static_cast<size_t>(size_)) {
    for (int64_t i = 0; i < size_; ++i) {
      std::copy_n(damped.row(i), size_, a_.row(i));
      for (int64_t j = 0; j < size_; ++j) a_(i, size_) += damped(i, j) * weights[j];
      a_(size_, i) = a_(i, size_);
      a_(size_, size_) += weights[i] * a_(i, size_);
      floor_.push_back(kPivotFloor * damped(i, i));
    }
    for (int64_t i = 0; i < size_; ++i) {
      // One that depends on the others stays at 0 and is the cheapest to give up.
      if (kept[i] != 0) Put(i);
    }
  }

  RowTableau(const RowTableau& other)
      : size_(other.size_), a_(size_ + 1, size_ + 1), floor_(other.floor_), inside_(other.inside_) {
    std::copy_n(other.a_.data(), other.a_.size(), a_.data());
  }
  RowTableau& operator=(RowTableau&&) = default;

  double loss() const { return a_(size_, size_); }
  bool inside(int64_t i) const { return inside_[static_cast<size_t>(i)] != 0; }
  bool CanEnter(int64_t i) const { return !inside(i) && a_(i, i) > Floor(i); }
  double Weight(int64_t i) const { return Swept(i) ? a_(i, size_) : 0; }
  double Cost(int64_t q) const { return Swept(q) ? a_(q, size_) * a_(q, size_) / -a_(q, q) : 0; }
  double Gain(int64_t p) const {
    return a_(p, p) > Floor(p) ? a_(p, size_) * a_(p, size_) / a_(p, p) : 0;
  }
  double ExchangeGain(int64_t q, int64_t p) const {
    if (!Swept(q)) return Gain(p);
    const double h = -1 / a_(q, q);
    const double pivot = a_(p, p) + a_(q, p) * a_(q, p) * h;
    if (!(pivot > Floor(p))) return -kInfinity;
    const double residual = a_(p, size_) + a_(q, p) * a_(q, size_) * h;
    return residual * residual / pivot - Cost(q);
  }

  void Put(int64_t i) {
    inside_[static_cast<size_t>(i)] = 1;
    if (a_(i, i) > Floor(i)) Sweep(i, 1);
  }
  void Remove(int64_t i) {
    inside_[static_cast<size_t>(i)] = 0;
    if (a_(i, i) < 0) Sweep(i, -1);
  }

 private:
  double Floor(int64_t i) const { return floor_[static_cast<size_t>(i)]; }
  bool Swept(int64_t i) const { return inside(i) && a_(i, i) < 0; }

  void Sweep(int64_t k, double sign) {
    const double pivot = a_(k, k);
    std::vector<double> column(static_cast<size_t>(size_ + 1));
    for (int64_t i = 0; i <= size_; ++i) column[static_cast<size_t>(i)] = a_(i, k);
    for (int64_t i = 0; i <= size_; ++i) {
      if (i == k) continue;
      const double factor = column[static_cast<size_t>(i)] / pivot;
      for (int64_t j = 0; j <= size_; ++j) a_(i, j) -= factor * column[static_cast<size_t>(j)];
    }
    for (int64_t i = 0; i <= size_; ++i) {
      a_(i, k) = a_(k, i) = sign * column[static_cast<size_t>(i)] / pivot;
    }
    a_(k, k) = -1 / pivot;
  }

  int64_t size_;
  Matrix<double> a_;
  std::vector<double> floor_;
  std::vector<uint8_t> inside_;
};

class Search {
 public:
  Search(const Matrix<double>& weights, const Matrix<double>& gram, const Groups& groups,
         const Mask& start, const JointRequest& request, DType dtype,
         absl::FunctionRef<bool()> stop)
      : weights_(weights),
        groups_(groups),
        request_(request),
        dtype_(dtype),
        stop_(stop),
        damped_(Damped(gram, request.options.damping)) {
    result_.mask = start;
    result_.weights = Matrix<float>(start.rows(), start.cols());
    std::copy_n(request.weights->data(), request.weights->size(), result_.weights.data());
    costs_.resize(static_cast<size_t>(start.rows()));
    gains_.resize(static_cast<size_t>(start.rows()));
  }

  JointResult Run() {
    result_.converged = true;
    for (int64_t row = 0; row < result_.mask.rows() && result_.converged; ++row) {
      result_.converged = SearchRow(row);
    }
    while (groups_.whole_matrix && result_.converged && !ended_) {
      if (!ExchangeBetweenRows()) break;
    }
    result_.converged = result_.converged && !ended_;
    return std::move(result_);
  }

 private:
  bool Ended() { return ended_ = ended_ || stop_(); }
  std::vector<uint8_t> KeptOf(int64_t row) const {
    std::vector<uint8_t> kept;
    for (int64_t j = 0; j < result_.mask.cols(); ++j) {
      kept.push_back(result_.mask.Get(row, j) ? 1 : 0);
    }
    return kept;
  }
  double Tolerance(int64_t row, double loss) const {
    double squares = 0;
    for (int64_t j = 0; j < damped_.cols(); ++j) {
      squares += weights_(row, j) * weights_(row, j) * damped_(j, j);
    }
    return kJointTolerance * std::max(0.0, loss) + kSwapNoise * squares;
  }

  // Until no exchange within the row pays; false where `stop` ended it.
  bool SearchRow(int64_t row) {
    if (Ended()) return false;
    RowTableau tableau(damped_, weights_.row(row), KeptOf(row).data());
    if (tolerance_.size() == static_cast<size_t>(row)) {
      tolerance_.push_back(Tolerance(row, tableau.loss()));
    }
    while (!Ended()) {
      const Exchange best = BestWithin(tableau, row);
      if (best.gain > tolerance_[static_cast<size_t>(row)]) {
        tableau.Remove(best.q);
        tableau.Put(best.p);
        ++result_.exchanges;
      } else if (!TakeDetour(tableau, row)) {
        break;
      }
    }
    TakeRow(tableau, row);
    return !ended_;
  }

  void TakeRow(const RowTableau& tableau, int64_t row) {
    Single& cost = costs_[static_cast<size_t>(row)] = {};
    Single& gain = gains_[static_cast<size_t>(row)] = {};
    for (int64_t j = 0; j < result_.mask.cols(); ++j) {
      const bool inside = tableau.inside(j);
      result_.mask.Set(row, j, inside);
      result_.weights(row, j) = inside ? RoundedTo(dtype_, tableau.Weight(j)) : 0;
      if (inside && !request_.fixed->Get(row, j) && tableau.Cost(j) < cost.change) {
        cost = {tableau.Cost(j), j};
      }
      if (!inside && -tableau.Gain(j) < gain.change) gain = {-tableau.Gain(j), j};
    }
  }

  Exchange BestWithin(const RowTableau& tableau, int64_t row) const {
    Exchange best;
    for (int64_t q = 0; q < result_.mask.cols(); ++q) {
      if (!tableau.inside(q) || request_.fixed->Get(row, q)) continue;
      const int64_t first = q / groups_.group_cols * groups_.group_cols;
      for (int64_t p = first; p < first + groups_.group_cols; ++p) {
        if (tableau.inside(p)) continue;
        const double gain = tableau.ExchangeGain(q, p);
        if (gain > best.gain) best = {gain, q, p};
      }
    }
    return best;
  }

  bool TakeDetour(RowTableau& tableau, int64_t row) {
    for (const int depth : kJointDetours) {
      for (const bool in_first : {true, false}) {
        if (Ended()) return false;
        RowTableau trial = tableau;
        if (!Detour(trial, row, depth, in_first)) continue;
        if (!(tableau.loss() - trial.loss() > tolerance_[static_cast<size_t>(row)])) continue;
        for (int64_t j = 0; j < result_.mask.cols(); ++j) {
          result_.exchanges += trial.inside(j) && !tableau.inside(j) ? 1 : 0;
        }
        tableau = std::move(trial);
        return true;
      }
    }
    return false;
  }

  // False where there are not columns enough.
  bool Detour(RowTableau& tableau, int64_t row, int depth, bool in_first) const {
    std::vector<int> open(static_cast<size_t>(groups_.groups_per_row));
    for (const bool back : {false, true}) {
      for (int n = 0; n < depth; ++n) {
        Single best;
        for (int64_t j = 0; j < result_.mask.cols(); ++j) {
          if (back && open[static_cast<size_t>(j / groups_.group_cols)] == 0) continue;
          const bool entering = in_first != back;
          if (tableau.inside(j) == entering || request_.fixed->Get(row, j)) continue;
          if (entering && !tableau.CanEnter(j)) continue;
          const double change = entering ? -tableau.Gain(j) : tableau.Cost(j);
          if (change < best.change) best = {change, j};
        }
        if (best.col < 0) return false;
        open[static_cast<size_t>(best.col / groups_.group_cols)] += back ? -1 : 1;
        if (tableau.inside(best.col)) {
          tableau.Remove(best.col);
        } else {
          tableau.Put(best.col);
        }
      }
    }
    return true;
  }

  // The cheapest removal of one row and the best addition of another.
  bool ExchangeBetweenRows() {
    double best = 0;
    int64_t giver = -1;
    int64_t taker = -1;
    for (int64_t i = 0; i < result_.mask.rows(); ++i) {
      for (int64_t j = 0; j < result_.mask.rows(); ++j) {
        const auto from = static_cast<size_t>(i);
        const auto to = static_cast<size_t>(j);
        if (i == j || costs_[from].col < 0 || gains_[to].col < 0) continue;
        const double change =
            costs_[from].change + gains_[to].change + tolerance_[from] + tolerance_[to];
        if (change < best) {
          best = change;
          giver = i;
          taker = j;
        }
      }
    }
    if (giver < 0 || Ended()) return false;
    result_.mask.Set(giver, costs_[static_cast<size_t>(giver)].col, false);
    result_.mask.Set(taker, gains_[static_cast<size_t>(taker)].col, true);
    ++result_.exchanges;
    // Both even where it is to end: their weights must fit the mask.
    const bool first = SearchAnyway(giver);
    return SearchAnyway(taker) && first;
  }

  bool SearchAnyway(int64_t row) {
    if (SearchRow(row)) return true;
    TakeRow(RowTableau(damped_, weights_.row(row), KeptOf(row).data()), row);
    return false;
  }

  const Matrix<double>& weights_;
  const Groups groups_;
  const JointRequest& request_;
  const DType dtype_;
  absl::FunctionRef<bool()> stop_;
  Matrix<double> damped_;
  std::vector<double> tolerance_;  // tolerance of each row
  std::vector<Single> costs_;      // of each row: the cheapest removal
  std::vector<Single> gains_;      // and minus the best addition
  bool ended_ = false;
  JointResult result_;
};

}  // namespace

Matrix<double> Damped(const Matrix<double>& gram, double damping) {
  Matrix<double> damped(gram.rows(), gram.cols());
  std::copy_n(gram.data(), gram.size(), damped.data());
  double mean = 0;
  for (int64_t i = 0; i < gram.rows(); ++i) mean += gram(i, i) / static_cast<double>(gram.rows());
  for (int64_t i = 0; i < gram.rows(); ++i) damped(i, i) += damping * mean;
  return damped;
}

JointResult ReferenceJoint(const Matrix<double>& weights, const Matrix<double>& gram,
                           const Groups& groups, const Mask& start, const JointRequest& request,
                           DType dtype, absl::FunctionRef<bool()> stop) {
  return Search(weights, gram, groups, start, request, dtype, stop).Run();
}

}  // namespace sparsefw
