#include "core/src/select/lowest_scores.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <tuple>

#include "absl/status/statusor.h"
#include "core/src/linalg/finite.h"
#include "sparsefw/mutex.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Exponent and four bits of the fraction: in the order of the scores,
// which are not negative.
constexpr int kLowBits = 48;
constexpr size_t kBuckets = size_t{1} << 15;
using Histogram = std::vector<int64_t>;

size_t BucketOf(double score) { return (std::bit_cast<uint64_t>(score) >> kLowBits) % kBuckets; }

// The scores below `value` are marked, and the first `equal_marked` equal to it.
struct Threshold {
  double value = 0;
  int64_t equal_marked = 0;
};

class LowestOfMatrix {
 public:
  LowestOfMatrix(const Matrix<double>& scores, int64_t width, const ParallelContext& context)
      : scores_(scores),
        width_(width),
        blocks_{scores.rows(), RowGrain(width)},
        context_(context) {}

  absl::Status Mark(int64_t count, Matrix<uint8_t>& marks) {
    SPARSEFW_ASSIGN_OR_RETURN(const Histogram histogram, CountBuckets());
    size_t bucket = 0;
    while (histogram[bucket] < count) count -= histogram[bucket++];
    SPARSEFW_ASSIGN_OR_RETURN(const Threshold threshold, FindThreshold(bucket, count));
    return MarkBelow(threshold, marks);
  }

 private:
  // Calls visit(row, scores of the row) for the rows of a block.
  template <typename Visit>
  void ForRows(int64_t block, Visit visit) const {
    for (int64_t row = blocks_.begin(block); row < blocks_.end(block); ++row) {
      visit(row, std::span(scores_.row(row), static_cast<size_t>(width_)));
    }
  }

  absl::StatusOr<Histogram> CountBuckets() {
    Mutex mutex;
    Histogram total(kBuckets);
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks_.count(), [&](int64_t block) {
      Histogram counts(kBuckets);
      ForRows(block, [&](int64_t, std::span<const double> scores) {
        for (const double score : scores) ++counts[BucketOf(score)];
      });
      const MutexLock lock(mutex);
      for (size_t i = 0; i < kBuckets; ++i) total[i] += counts[i];
    }));
    return total;
  }

  // The count-th lowest score of the bucket.
  absl::StatusOr<Threshold> FindThreshold(size_t bucket, int64_t count) {
    Mutex mutex;
    std::vector<double> candidates;
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks_.count(), [&](int64_t block) {
      std::vector<double> found;
      ForRows(block, [&](int64_t, std::span<const double> scores) {
        for (const double score : scores) {
          if (BucketOf(score) == bucket) found.push_back(score);
        }
      });
      const MutexLock lock(mutex);
      candidates.insert(candidates.end(), found.begin(), found.end());
    }));
    std::nth_element(candidates.begin(), candidates.begin() + (count - 1), candidates.end());
    const double value = candidates[static_cast<size_t>(count - 1)];
    const int64_t below = std::count_if(candidates.begin(), candidates.end(),
                                        [&](double score) { return score < value; });
    return Threshold{value, count - below};
  }

  absl::Status MarkBelow(const Threshold& threshold, Matrix<uint8_t>& marks) {
    std::vector<int64_t> equal(static_cast<size_t>(scores_.rows()));
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks_.count(), [&](int64_t block) {
      ForRows(block, [&](int64_t row, std::span<const double> scores) {
        equal[static_cast<size_t>(row)] = std::count(scores.begin(), scores.end(), threshold.value);
      });
    }));
    // From here on: the equal scores in the rows above.
    std::exclusive_scan(equal.begin(), equal.end(), equal.begin(), int64_t{0});
    return context_.ForEach(blocks_.count(), [&](int64_t block) {
      ForRows(block, [&](int64_t row, std::span<const double> scores) {
        int64_t left = threshold.equal_marked - equal[static_cast<size_t>(row)];
        uint8_t* out = marks.row(row);
        for (const double score : scores) {
          const bool marked = score < threshold.value || (score == threshold.value && left-- > 0);
          *out++ = marked ? 1 : 0;
        }
      });
    });
  }

  const Matrix<double>& scores_;
  const int64_t width_;
  const RowBlocks blocks_;
  const ParallelContext& context_;
};

}  // namespace

void MarkLowest(const double* scores, int64_t size, int64_t count, std::vector<int64_t>& scratch,
                uint8_t* marks) {
  const bool all = count >= size;
  std::fill_n(marks, size, all ? 1 : 0);
  if (all || count <= 0) return;
  scratch.resize(static_cast<size_t>(size));
  std::iota(scratch.begin(), scratch.end(), 0);
  std::nth_element(scratch.begin(), scratch.begin() + count, scratch.end(),
                   [scores](int64_t a, int64_t b) {
                     return std::tuple(scores[a], a) < std::tuple(scores[b], b);
                   });
  for (int64_t i = 0; i < count; ++i) marks[scratch[static_cast<size_t>(i)]] = 1;
}

absl::Status MarkLowestOfMatrix(const Matrix<double>& scores, int64_t width, int64_t count,
                                const ParallelContext& context, Matrix<uint8_t>& marks) {
  if (count > 0) return LowestOfMatrix(scores, width, context).Mark(count, marks);
  return context.ForEach(scores.rows(),
                         [&](int64_t row) { std::fill_n(marks.row(row), width, 0); });
}

}  // namespace sparsefw
