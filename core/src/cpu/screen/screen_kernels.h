// The vectorised inner loops of screened iterations, compiled for several
// instruction sets and chosen at run time: ../linalg/kernels.h has the rules.
//
// Rows of active columns are 64-byte aligned and padded with zeros to whole words
// of 64; loops over them end at the next multiple of kLaneGroup.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREEN_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREEN_KERNELS_H_

#include <cstdint>

#include "core/src/cpu/linalg/kernels.h"

namespace sparsefw::cpu {

inline constexpr int64_t kLaneGroup = 16;

// Which scores may reach the threshold while the row moves by `radius` at most.
template <typename Real>
struct ScreenTest {
  const Real* norms = nullptr;  // sqrt(G_jj)
  Real radius = 0;
  Real low = 0;  // the window that the threshold stays in
  Real high = 0;
};

// With s = W.E and r = |W|.norms.radius, of the coordinates that are not fixed:
//   above = those with s - r > high;  active = those with neither that nor s + r < low
//   nor s + r <= 0, for only positive scores are ever selected
void ScreenRow(const RowOperands<float>& row, const ScreenTest<float>& test, uint64_t* active,
               uint64_t* above);
void ScreenRow(const RowOperands<double>& row, const ScreenTest<double>& test, uint64_t* active,
               uint64_t* above);

// The least score W.E over the coordinates in `vertex`; the largest value of the type if none is.
float LeastScore(int64_t words, const float* weights, const float* product, const uint64_t* vertex);
double LeastScore(int64_t words, const double* weights, const double* product,
                  const uint64_t* vertex);

// The fused pass over the active columns of a row, `groups` times kLaneGroup of them:
//   E += step * (U - E);  s = W.E;  above = those with s > high;
//   window = those with low < s <= high;  scores = s
// At least one word of bits is written.
void AdvanceActive(const RowOperands<float>& row, int64_t groups, float step, float low, float high,
                   float* scores, uint64_t* above, uint64_t* window);
void AdvanceActive(const RowOperands<double>& row, int64_t groups, double step, double low,
                   double high, double* scores, uint64_t* above, uint64_t* window);

// E += step * (U - E);  scores = W.E
void ScoreActive(const RowOperands<float>& row, int64_t groups, float step, float* scores);
void ScoreActive(const RowOperands<double>& row, int64_t groups, double step, double* scores);

// out = keep * out + move * other
void BlendRow(int64_t words, float keep, const float* other, float move, float* out);
void BlendRow(int64_t words, double keep, const double* other, double move, double* out);

// out[i] = from[offsets[i]], i below `count`; fetches next[offsets[i]], if it is not null, into
// the cache meanwhile.
void GatherRow(const float* from, const float* next, const int32_t* offsets, int64_t count,
               float* out);
void GatherRow(const double* from, const double* next, const int32_t* offsets, int64_t count,
               double* out);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREEN_KERNELS_H_
