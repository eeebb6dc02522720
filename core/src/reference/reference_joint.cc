#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/src/frank_wolfe/swap_tolerance.h"
#include "core/src/reconstruct/rounded_value.h"
#include "core/src/reference/reference_searches.h"

namespace sparsefw {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A pivot below this part of its diagonal is rounding: the column cannot be swept in.
constexpr double kPivotFloor = 1e-11;

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

  double loss() const { return a_(size_, size_); }
  bool inside(int64_t i) const { return inside_[static_cast<size_t>(i)] != 0; }
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
  }

  JointResult Run() {
    result_.converged = true;
    for (int64_t row = 0; row < result_.mask.rows() && result_.converged; ++row) {
      result_.converged = SearchRow(row);
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

  // Exchanges until none within the row pays; false where `stop` ended it.
  bool SearchRow(int64_t row) {
    if (Ended()) return false;
    RowTableau tableau(damped_, weights_.row(row), KeptOf(row).data());
    const double tolerance = Tolerance(row, tableau.loss());
    while (!Ended()) {
      const Exchange best = BestWithin(tableau, row);
      if (!(best.gain > tolerance)) break;
      tableau.Remove(best.q);
      tableau.Put(best.p);
      ++result_.exchanges;
    }
    TakeRow(tableau, row);
    return !ended_;
  }

  void TakeRow(const RowTableau& tableau, int64_t row) {
    for (int64_t j = 0; j < result_.mask.cols(); ++j) {
      const bool inside = tableau.inside(j);
      result_.mask.Set(row, j, inside);
      result_.weights(row, j) = inside ? RoundedTo(dtype_, tableau.Weight(j)) : 0;
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

  const Matrix<double>& weights_;
  const Groups groups_;
  const JointRequest& request_;
  const DType dtype_;
  absl::FunctionRef<bool()> stop_;
  Matrix<double> damped_;
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
