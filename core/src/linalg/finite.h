// Where a matrix holds NaN or infinity; its values one by one, and its diagonal.
#ifndef SPARSEFW_CORE_SRC_LINALG_FINITE_H_
#define SPARSEFW_CORE_SRC_LINALG_FINITE_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "sparsefw/matrix.h"

namespace sparsefw {

// The lowest of the indices that several threads offer.
class LowestIndex {
 public:
  void Offer(int64_t index) {
    int64_t seen = lowest_.load(std::memory_order_relaxed);
    while (index < seen && !lowest_.compare_exchange_weak(seen, index)) {
    }
  }
  // True when nothing from `index` on can be the lowest any more.
  bool IsBelow(int64_t index) const { return lowest_.load(std::memory_order_relaxed) <= index; }
  std::optional<int64_t> Get() const {
    const int64_t lowest = lowest_.load();
    return lowest == kNone ? std::nullopt : std::optional(lowest);
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> lowest_{kNone};
};

struct NonFinite {
  int64_t row = 0;
  int64_t col = 0;
  double value = 0;
};

// The first in row-major order, on any number of threads; none in a kBool
// matrix. One parallel read.
std::optional<NonFinite> FindNonFinite(ConstMatrixView matrix);

// Sums of kGramBlockTokens squares of values of this size come near the largest float32.
inline constexpr double kTooLargeActivation = 0x1.0p58;
// As FindNonFinite, those above included. F32, F16, BF16.
std::optional<NonFinite> FindTooLarge(ConstMatrixView activations);

double ValueAt(ConstMatrixView matrix, int64_t row, int64_t col);

std::vector<double> DiagonalOf(ConstMatrixView gram);

// The damping that a Gram matrix gets on its diagonal, the same in every engine: damping * mean of
// the diagonal, summed in float64 from the first column on.
template <typename Real>
Real DampingTerm(const std::vector<Real>& diagonal, double damping) {
  const double sum = std::accumulate(diagonal.begin(), diagonal.end(), 0.0);
  return static_cast<Real>(damping * sum / static_cast<double>(diagonal.size()));
}

// Rows of a block of a parallel pass over a matrix.
inline int64_t RowGrain(int64_t cols) { return cols >= 65536 ? 1 : 65536 / (cols < 1 ? 1 : cols); }

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_FINITE_H_
