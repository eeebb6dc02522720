// The joint search within one row: exchanges until none lowers L*.
#ifndef SPARSEFW_CORE_SRC_CPU_JOINT_ROW_SEARCH_H_
#define SPARSEFW_CORE_SRC_CPU_JOINT_ROW_SEARCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/cpu/joint/joint_kernels.h"
#include "core/src/cpu/joint/tableau.h"
#include "core/src/cpu/linalg/panel_kernels.h"
#include "core/src/cpu/swaps/swap_state.h"
#include "core/src/joint/joint_rules.h"
#include "core/src/joint/row_window.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::cpu {

// One row, as the search is given it.
struct JointRow {
  const double* products = nullptr;  // b = wH, [cols]
  double energy = 0;                 // w H w^T
  double tolerance = 0;              // what an exchange must gain
  WindowRow columns;
};

struct JointRowResult {
  std::vector<uint8_t> kept;
  std::vector<float> weights;  // of the scaled layer, not rounded
  double loss = 0;             // L*
  int64_t exchanges = 0;
  bool converged = false;
};

// Passes over the columns that may leave: for each the best of all that may enter, on one
// tableau; then the promising ones again, most first, each with its column as it is by
// then, so that every exchange taken lowers L* by what it says. A pass that finds nothing
// proves that no exchange within the tableau pays. Columns that promised little
// at the start, which are not in it, are then tried by r_p^2 / H_pp, a lower bound of their gain.
//
// Ties: of equal gains the lower position.
// Memory: TableauBytes and a few rows. Not thread-safe.
template <typename Real>
class RowSearch {
 public:
  RowSearch(const Matrix<Real>& gram, int64_t cols, const Groups& groups, SwapBudget& budget)
      : gram_(gram),
        cols_(cols),
        groups_(groups),
        budget_(budget),
        tableau_(gram, cols),
        position_of_(Index(cols)),
        weights_(Index(cols)),
        residual_(1, gram.cols()) {}

  // Ends early, not converged, only where the budget is spent.
  JointRowResult Run(const JointRow& row) {
    DivideColumns(row.columns, cols_, groups_, window_);
    tableau_.Build(row.products, row.energy, window_.fixed, window_.kept, window_.outside);
    column_.resize(Index(tableau_.stride() + kKernelSlack));
    std::fill(position_of_.begin(), position_of_.end(), -1);
    for (int64_t i = 0; i < tableau_.size(); ++i) {
      position_of_[Index(tableau_.column(i))] = static_cast<int32_t>(i);
    }
    JointRowResult result;
    int admissions = 0;
    for (int64_t pass = 0; pass < kMostPasses && !budget_.Spent(); ++pass) {
      if (Pass(row, result.exchanges)) continue;
      result.converged = admissions == kMostAdmissions || Admit(row) == 0;
      if (result.converged) break;
      ++admissions;
    }
    result.loss = tableau_.loss();
    tableau_.Weights(weights_.data());
    result.weights.resize(Index(cols_));
    std::transform(weights_.begin(), weights_.end(), result.weights.begin(),
                   [](Real weight) { return static_cast<float>(weight); });
    result.kept.assign(row.columns.fixed, row.columns.fixed + cols_);
    for (int64_t i = 0; i < tableau_.size(); ++i) {
      if (tableau_.inside(i)) result.kept[Index(tableau_.column(i))] = 1;
    }
    return result;
  }

 private:
  struct Candidate {
    double gain;
    int32_t position;  // or column
  };

  // The largest gain first, of equals the lower position.
  static void Sort(std::vector<Candidate>& candidates) {
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.gain != b.gain ? a.gain > b.gain : a.position < b.position;
    });
  }

  static size_t Index(int64_t index) { return static_cast<size_t>(index); }

  // Returns whether it exchanged anything.
  bool Pass(const JointRow& row, int64_t& exchanges) {
    candidates_.clear();
    for (int64_t q = 0; q < tableau_.size(); ++q) {
      if (!tableau_.inside(q)) continue;
      int64_t partner = -1;
      const double gain =
          BestOf(tableau_.flushed_row(q), q, partner, /*find=*/false) - tableau_.Change(q);
      if (gain > row.tolerance) candidates_.push_back({gain, static_cast<int32_t>(q)});
    }
    Sort(candidates_);
    bool exchanged = false;
    for (const Candidate& candidate : candidates_) {
      if (!tableau_.HasRoom(2) || candidate.gain < kWorthTaking * candidates_.front().gain) break;
      if (!tableau_.inside(candidate.position)) continue;
      const bool first = &candidate == candidates_.data();
      const double least = first ? row.tolerance : kWorthTaking * candidates_.front().gain;
      if (!TryExchange(candidate.position, std::max(row.tolerance, least))) continue;
      exchanged = true;
      ++exchanges;
    }
    tableau_.Flush();
    return exchanged;
  }

  bool TryExchange(int64_t position, double tolerance) {
    tableau_.Fetch(position, column_.data());
    int64_t partner = -1;
    const double gain = BestOf(column_.data(), position, partner, /*find=*/true);
    if (partner < 0 || !(gain - tableau_.Change(position) > tolerance)) return false;
    tableau_.Sweep(position, column_.data());
    tableau_.Fetch(partner, column_.data());
    tableau_.Sweep(partner, column_.data());
    return true;
  }

  // The best gain of a column that may enter when the one at `position` leaves; of n:m
  // groups in its group.
  double BestOf(const Real* column, int64_t position, int64_t& partner, bool find) const {
    const Real inverse = -1 / tableau_.diagonals()[position];
    const Leaving<Real> leaving = {.size = tableau_.size(),
                                   .column = column,
                                   .targets = tableau_.targets(),
                                   .diagonals = tableau_.diagonals(),
                                   .floors = tableau_.floors(),
                                   .step = tableau_.targets()[position] * inverse,
                                   .inverse = inverse};
    if (groups_.group_cols == cols_) {
      const Real best = KernelsOfJointSearch<Real>().best_gain(leaving);
      partner = find ? KernelsOfJointSearch<Real>().find_gain(leaving, best) : -1;
      return static_cast<double>(best);
    }
    double best = 0;
    partner = -1;
    const int64_t first = tableau_.column(position) / groups_.group_cols * groups_.group_cols;
    for (int64_t j = first; j < first + groups_.group_cols; ++j) {
      const int64_t p = position_of_[Index(j)];
      if (p < 0) continue;
      const Real entry = column[p];
      const Real diagonal = leaving.diagonals[p] + entry * entry * inverse;
      if (!(diagonal > leaving.floors[p])) continue;
      const auto target = static_cast<double>(leaving.targets[p] + entry * leaving.step);
      const double gain = target * target / static_cast<double>(diagonal);
      if (gain > best) std::tie(best, partner) = std::tuple(gain, p);
    }
    return best;
  }

  // Takes excluded columns whose gain is above what the cheapest kept weight (of their
  // group) costs. Returns how many.
  int64_t Admit(const JointRow& row) {
    if (window_.excluded.empty()) return 0;
    tableau_.Weights(weights_.data());
    std::transform(row.products, row.products + cols_, residual_.data(),
                   [](double product) { return static_cast<Real>(product); });
    subtracted_.Reset(cols_, cols_);
    subtracted_.BeginRow();
    for (int64_t j = 0; j < cols_; ++j) {
      if (weights_[Index(j)] != 0) subtracted_.Add(-weights_[Index(j)], j);
    }
    subtracted_.EndRow();
    const int64_t panels = gram_.cols() / kPanelCols;
    KernelsOfPanels<Real>().add_sparse_product({.a = subtracted_,
                                                .gram = {.data = gram_.data(),
                                                         .depth = cols_,
                                                         .count = panels,
                                                         .row_stride = gram_.cols(),
                                                         .panel_stride = kPanelCols},
                                                .panels = {0, panels},
                                                .out = residual_.data(),
                                                .out_stride = residual_.cols()});
    // The cheapest kept weight of every group.
    std::vector<double> cheapest(Index(cols_ / groups_.group_cols),
                                 std::numeric_limits<double>::infinity());
    for (int64_t q = 0; q < tableau_.size(); ++q) {
      if (!tableau_.inside(q)) continue;
      double& least = cheapest[Index(tableau_.column(q) / groups_.group_cols)];
      least = std::min(least, tableau_.Change(q));
    }
    std::vector<Candidate> paying;
    for (const int32_t p : window_.excluded) {
      const auto r = static_cast<double>(residual_(0, p));
      const auto diagonal = static_cast<double>(gram_(p, p));
      if (!(diagonal > 0)) continue;
      const double gain = r * r / diagonal;
      if (gain > cheapest[Index(p / groups_.group_cols)] + row.tolerance)
        paying.push_back({gain, p});
    }
    Sort(paying);
    std::vector<int32_t> entering;
    for (const Candidate& candidate : paying) entering.push_back(candidate.position);
    const int64_t before = tableau_.size();
    const int64_t count = tableau_.Border(row.products, entering);
    for (int64_t n = 0; n < count; ++n) {
      const int32_t column = tableau_.column(before + n);
      position_of_[Index(column)] = static_cast<int32_t>(before + n);
      window_.excluded.erase(std::find(window_.excluded.begin(), window_.excluded.end(), column));
    }
    return count;
  }

  const Matrix<Real>& gram_;
  const int64_t cols_;
  const Groups groups_;
  SwapBudget& budget_;
  Tableau<Real> tableau_;
  RowWindow window_;
  // Positions of a group's columns, for n:m; -1 where a column is not in the tableau.
  std::vector<int32_t> position_of_;
  std::vector<Candidate> candidates_;
  std::vector<Real> column_;
  std::vector<Real> weights_;
  Matrix<Real> residual_;
  SparseRows<Real> subtracted_;  // scratch: a row, what H is multiplied by
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_JOINT_ROW_SEARCH_H_
