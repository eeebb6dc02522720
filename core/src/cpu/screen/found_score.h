// A score near the threshold of one budget for all rows.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_FOUND_SCORE_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_FOUND_SCORE_H_

#include <cstdint>

namespace sparsefw::cpu {

template <typename Real>
struct FoundScore {
  Real score = 0;
  uint32_t row = 0;
  uint32_t lane = 0;
};

// Whether `a` is selected before `b`: of equal scores the later one.
template <typename Real>
bool Better(const FoundScore<Real>& a, const FoundScore<Real>& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.row != b.row ? a.row > b.row : a.lane > b.lane;
}

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_FOUND_SCORE_H_
