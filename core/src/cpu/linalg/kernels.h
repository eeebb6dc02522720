// The vectorised inner loops, compiled for several instruction sets and chosen
// at run time.
//
// Rows of reals are 64-byte aligned, but for those of W, and `words * 64` long: the columns beyond
// the matrix are zero in every operand, so that there are no tails. Sets of
// coordinates are `words` 64-bit words, column c in bit c % 64 of word c / 64.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_KERNELS_H_

#include <cstdint>
#include <optional>

namespace sparsefw::cpu {

// One row of the iterate: where a step leaves from and what it is measured by.
template <typename Real>
struct RowOperands {
  int64_t words = 0;
  const Real* weights = nullptr;         // W_i
  const Real* vertex_product = nullptr;  // U_i
  const uint64_t* fixed = nullptr;
  Real* product = nullptr;     // E_i, updated in place
  int64_t lanes = words * 64;  // a multiple of kLaneGroup; E, U and W are 0 beyond them
};

// Columns of the widest vector.
inline constexpr int64_t kLaneGroup = 16;

// Rows that dot_rows takes.
inline constexpr int kDotRows = 4;

// Where the threshold of a selection was, and how far apart scores lay there; 0: not
// known.
template <typename Real>
struct ThresholdGuess {
  Real threshold = 0;
  Real spacing = 0;
};

// The loops for the processor at hand: Kernels<Real>().masked_dot(...).
template <typename Real>
struct RowKernels {
  // The fused pass for a selection by threshold:
  //   E += step * (U - E);  s = W.E;  above = free coordinates with s > high;
  //   window = those with low < s <= high
  // Returns <W, E> over the coordinates neither fixed nor above, in float64.
  double (*update_and_scan)(const RowOperands<Real>& row, Real step, Real low, Real high,
                            uint64_t* above, uint64_t* window);

  // E += step * (U - E);  scores = W.E
  void (*update_and_score)(const RowOperands<Real>& row, Real step, Real* scores);

  // The vertex of the `wanted` largest positive scores, of equal ones the later. Returns the
  // least of them, 0 where no other is positive. Exact whatever the guess, which is brought
  // up to date.
  Real (*select_largest)(const Real* scores, int64_t groups, int64_t wanted,
                         ThresholdGuess<Real>& guess, uint64_t* vertex);

  // The fused pass for groups of a few columns, small enough for one vector and a
  // power of two; nothing is done for others:
  //   E += step * (U - E);  s = W.E;  vertex = in every group the free coordinates
  //   with s > 0 that fewer than `capacity` coordinates of the group rank before:
  //   fixed ones, larger s, of equal s the higher columns
  // Returns <W, E> over the coordinates neither fixed nor in the vertex, in float64.
  std::optional<double> (*update_and_select)(const RowOperands<Real>& row, Real step, int64_t group,
                                             Real capacity, uint64_t* vertex);

  // <a, b> over the columns in neither of two sets, in float64: <D_V, E> of W, E, the fixed set and
  // a vertex.
  double (*masked_dot)(int64_t words, const Real* a, const Real* b, const uint64_t* skip,
                       const uint64_t* skip_too);

  // dots[i] = <rows[i], vector> in float64, i below kDotRows; `size` values each, of any
  // alignment.
  void (*dot_rows)(const Real* const* rows, const double* vector, int64_t size, double* dots);

  // out = a, zero on the columns in `skip`. `a` may be `out`.
  void (*zero_masked)(int64_t words, const Real* a, const uint64_t* skip, Real* out);
};
template <typename Real>
const RowKernels<Real>& Kernels();

// "AVX3", "AVX2", ...: the instruction set in use.
const char* SimdTargetName();

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_KERNELS_H_
