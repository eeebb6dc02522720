// The joint search within one row: exchanges until none lowers L*.
#ifndef SPARSEFW_CORE_SRC_CPU_JOINT_ROW_SEARCH_H_
#define SPARSEFW_CORE_SRC_CPU_JOINT_ROW_SEARCH_H_

#include <cstdint>
#include <vector>

#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/cpu/joint/tableau.h"
#include "core/src/cpu/swaps/swap_state.h"
#include "core/src/joint/row_window.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::cpu {

// One row, as the search is given it. Pointers: [cols].
struct JointRow {
  const double* products = nullptr;  // b = wH
  double energy = 0;                 // w H w^T
  double tolerance = 0;              // what an exchange must gain
  const float* bounds = nullptr;     // what a column outside would gain at least
  const uint8_t* kept = nullptr;     // 1 where kept
  const uint8_t* fixed = nullptr;    // 1 where it must stay; a subset of kept
  double excluded = 0;               // share of all columns, of those outside
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
  RowSearch(const Matrix<Real>& gram, int64_t cols, const Groups& groups, SwapBudget& budget);

  // Ends early, not converged, only where the budget is spent.
  JointRowResult Run(const JointRow& row);

 private:
  struct Candidate {
    double gain;
    int32_t position;
  };

  bool Pass(const JointRow& row, int64_t& exchanges);
  bool TryExchange(int64_t position, double tolerance);
  double BestOf(const Real* column, int64_t position, int64_t& partner, bool find) const;
  int64_t Admit(const JointRow& row);

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
