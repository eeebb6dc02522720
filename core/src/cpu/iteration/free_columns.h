// One row of the iterate without its fixed columns.
//
// E and U matter only where a coordinate is free: D is zero on the others. Over
// many iterations of one row it pays to leave them out, and to copy the rows of
// G that the row asks for, likewise shortened, as it first asks for them: they
// are the same few again and again, and their copies fit the cache.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_FREE_COLUMNS_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_FREE_COLUMNS_H_

#include <cstdint>
#include <iterator>
#include <vector>

#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/cpu/select/row_selector.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// A workspace for one thread: rows come one after the other.
//
// Memory: Bytes(cols): a few rows, and 2 MiB for copied rows of G. When they are
//         full all are forgotten.
template <typename Real>
class FreeColumns {
 public:
  FreeColumns(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed, int64_t copy_bytes = kCopyBytes);

  // Begins with a row, iterate.older known; what was copied for another one is forgotten.
  void Load(int64_t row);

  // V_{t-1} -> V_t: the relaxed mask's toggles and U. Returns the row's part of
  // b_t - b_{t-1}.
  double ApplyVertex();

  // Coordinates that the last ApplyVertex toggled, zero weights left out.
  int64_t toggled() const { return toggled_; }

  // M, E, and the next vertex; returns <D_V, E> of the row.
  double Advance(double step, RowSelector<Real>& selector, RowScratch<Real>& scratch);

  // Writes E, U, the next vertex and the older one back; E and U are then stale on fixed columns.
  void Store();

  static int64_t Bytes(int64_t cols);

  static constexpr int64_t kCopyBytes = int64_t{2} << 20;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  void CollectToggles();
  void CollectTerms(const std::vector<uint64_t>& from);
  void SpreadBits(const std::vector<uint64_t>& from, uint64_t* to) const;
  double Inner() const;
  void AddProduct();
  void CopyGramRow(int64_t index, int64_t slot);
  int64_t stride() const { return words_ * 64; }

  Iterate<Real>& iterate_;
  RelaxedMask<Real>& relaxed_;
  int64_t row_ = 0;
  int64_t words_ = 0;           // of the free columns
  std::vector<uint64_t> keep_;  // the free columns, a bit each
  std::vector<uint32_t> cols_;  // the same, ascending
  Matrix<Real> weights_;        // [1, stride]: W, E, U of these columns
  Matrix<Real> product_;
  Matrix<Real> vertex_product_;
  Matrix<Real> older_product_;   // U_{t-2}
  std::vector<uint64_t> fixed_;  // none
  std::vector<uint64_t> previous_;
  std::vector<uint64_t> older_;
  std::vector<uint64_t> vertex_;
  int64_t toggled_ = 0;
  std::vector<Term<Real>> terms_;  // delta; columns are free columns
  std::vector<uint32_t> slots_;    // of each free column: which copy of a row of G
  uint32_t slots_used_ = 0;
  Matrix<Real> gram_;       // [slots, stride]
  SparseRows<Real> delta_;  // the same terms; columns are slots
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_FREE_COLUMNS_H_
