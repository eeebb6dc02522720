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
  Real* product = nullptr;  // E_i, updated in place
};

// The fused pass for a selection by threshold:
//   E += step * (U - E);  s = W.E;  above = free coordinates with s > high;
//   window = those with low < s <= high
// Returns <W, E> over the coordinates neither fixed nor above, in float64.
double UpdateAndScan(const RowOperands<float>& row, float step, float low, float high,
                     uint64_t* above, uint64_t* window);
double UpdateAndScan(const RowOperands<double>& row, double step, double low, double high,
                     uint64_t* above, uint64_t* window);

// E += step * (U - E);  scores = W.E
void UpdateAndScore(const RowOperands<float>& row, float step, float* scores);
void UpdateAndScore(const RowOperands<double>& row, double step, double* scores);

// The fused pass for groups of a few columns, small enough for one vector and a
// power of two; nothing is done for others:
//   E += step * (U - E);  s = W.E;  vertex = in every group the free coordinates
//   with s > 0 that fewer than `capacity` coordinates of the group rank before:
//   fixed ones, larger s, of equal s the higher columns
// Returns <W, E> over the coordinates neither fixed nor in the vertex, in float64.
std::optional<double> UpdateAndSelect(const RowOperands<float>& row, float step, int64_t group,
                                      float capacity, uint64_t* vertex);
std::optional<double> UpdateAndSelect(const RowOperands<double>& row, double step, int64_t group,
                                      double capacity, uint64_t* vertex);

// <a, b> over the columns that are not in `skip`, in float64.
double MaskedDot(int64_t words, const float* a, const float* b, const uint64_t* skip);
double MaskedDot(int64_t words, const double* a, const double* b, const uint64_t* skip);

// out = a, zero on the columns in `skip`.
void ZeroMasked(int64_t words, const float* a, const uint64_t* skip, float* out);
void ZeroMasked(int64_t words, const double* a, const uint64_t* skip, double* out);

// The columns of `keep`, moved together. Column c of `a` is a[c / 64 *
// word_stride + c % 64]. Writes up to one vector beyond the last of them.
void Compress(int64_t words, const float* a, int64_t word_stride, const uint64_t* keep, float* out);
void Compress(int64_t words, const double* a, int64_t word_stride, const uint64_t* keep,
              double* out);

// "AVX3", "AVX2", ...: the instruction set in use.
const char* SimdTargetName();

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_KERNELS_H_
