// The vectorised inner loops of the joint search, compiled for several instruction sets
// and chosen at run time.
#ifndef SPARSEFW_CORE_SRC_CPU_JOINT_JOINT_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_JOINT_JOINT_KERNELS_H_

#include <cstdint>

namespace sparsefw::cpu {

// What q leaves behind when it is swept out: tableau.h.
//
//   target_p := target_p + column_p * step,   d_p := d_p + column_p^2 * inverse
//
// step = w_q h, inverse = h = -1 / A_qq. The arrays go on for kKernelSlack elements beyond
// `size`, where floors are infinite and the others are anything: there are no tails.
inline constexpr int64_t kKernelSlack = 64;

template <typename Real>
struct Leaving {
  int64_t size = 0;
  const Real* column = nullptr;   // A_pq
  const Real* targets = nullptr;  // before it leaves
  const Real* diagonals = nullptr;
  const Real* floors = nullptr;  // d_p must be above it; infinite: p cannot enter
  Real step = 0;
  Real inverse = 0;
};

// sum [., sum_stride] -= left^T right, both [count, stride], in the rows
// [begin, end) and the columns [0, size); with `upper` in none left of the diagonal but a
// few. Columns up to kKernelSlack beyond `size` are changed as well, to anything.
template <typename Real>
struct OuterProducts {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size = 0;
  int64_t count = 0;   // some dozens: all of a column's terms should fit the cache
  int64_t stride = 0;  // size + kKernelSlack at least
  const Real* left = nullptr;
  const Real* right = nullptr;
  Real* sum = nullptr;
  int64_t sum_stride = 0;
  bool upper = false;
};

// rows [count, stride] := U^-T rows, or U^-1 rows with `backward`, in the columns [first, size); U
// upper triangular [count, count] with its diagonal inverted. Columns beyond as above.
template <typename Real>
struct PanelSolve {
  int64_t count = 0;
  int64_t first = 0;
  int64_t size = 0;
  int64_t stride = 0;
  const Real* factor = nullptr;
  bool backward = false;
  Real* rows = nullptr;
};

template <typename Real>
struct JointKernels {
  // max over p of target_p^2 / d_p, 0 where none can enter.
  Real (*best_gain)(const Leaving<Real>& leaving);
  // The first p that attains it, `best` being what best_gain returned; -1 when it is 0.
  int64_t (*find_gain)(const Leaving<Real>& leaving, Real best);
  void (*subtract_outer_products)(const OuterProducts<Real>& products);
  void (*solve_panel)(const PanelSolve<Real>& solve);
};
template <typename Real>
const JointKernels<Real>& KernelsOfJointSearch();

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_JOINT_JOINT_KERNELS_H_
