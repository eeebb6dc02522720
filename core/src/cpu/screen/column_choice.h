// Which columns of a row an epoch is about: those whose vertex bit can change
// while the row moves by no more than its radius and, where a threshold
// decides, that stays in its window. docs/numerics.md, Screening, has the proof.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_COLUMN_CHOICE_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_COLUMN_CHOICE_H_

#include <cstdint>
#include <vector>

#include "core/src/cpu/iteration/iterate.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

template <typename Real>
struct Window {
  Real low = 0;
  Real high = 0;
  bool Holds(Real threshold) const { return low <= threshold && threshold <= high; }
};

// Bits of a row in full width.
struct ChosenColumns {
  std::vector<uint64_t> active;
  std::vector<uint64_t> above;  // inactive, and in the vertex
};

// Distinct rows concurrently.
template <typename Real>
class ColumnChoice {
 public:
  explicit ColumnChoice(const Iterate<Real>& iterate);

  // At E_t and V_{t-1} of the row; columns that must toggle now are active too.
  // n:m patterns: whole groups, fixed coordinates included; no window.
  void Choose(int64_t row, double radius, const Window<Real>& window, ChosenColumns& out) const;

  // The threshold of the row's vertex: the least score in it, 0 where it has
  // fewer than `free` coordinates.
  Real Threshold(int64_t row, int64_t free) const;

  const Matrix<Real>& norms() const { return norms_; }

 private:
  void ChooseGroups(int64_t row, double radius, ChosenColumns& out) const;
  bool GroupStays(int64_t row, int64_t first, double radius, ChosenColumns& out) const;

  const Iterate<Real>& iterate_;
  Matrix<Real> norms_;  // [1, stride]: sqrt(G_jj)
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_COLUMN_CHOICE_H_
