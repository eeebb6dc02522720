#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "core/src/cpu/select/row_selector.h"
#include "core/src/cpu/select/threshold.h"
#include "core/src/cpu/select/vertex_selector.h"
#include "core/src/frank_wolfe/score_window.h"
#include "core/src/select/ordered_key.h"
#include "core/src/select/top_select.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// One budget for the whole matrix.
template <typename Real>
class WholeMatrixSelector final : public VertexSelector<Real> {
 public:
  WholeMatrixSelector(Iterate<Real>& iterate, const ParallelContext& context)
      : iterate_(iterate), context_(context), scans_(static_cast<size_t>(iterate.blocks.count())) {}

  void Scan(int64_t block, Real step) override {
    BlockScan& scan = scans_[static_cast<size_t>(block)];
    WindowScores<Real>& scores = scan.scores;
    scan.inner = 0;
    scores.Clear();
    // Bounds the memory of a bad guess; a block that has more is a miss.
    const int64_t limit = iterate_.blocks.rows_per_block * iterate_.layer->stride() / 8;
    std::vector<uint64_t> window(static_cast<size_t>(iterate_.layer->words));
    for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
      uint64_t* above = iterate_.vertex.row(row);
      const RowOperands<Real> operands = iterate_.Row(row);
      scan.inner += Kernels<Real>().update_and_scan(operands, step, window_.low(), window_.high(),
                                                    above, window.data());
      for (int64_t word = 0; word < iterate_.layer->words; ++word) {
        scores.above += PopCount(above[word]);
        if (std::ssize(scores.inside) > limit) continue;
        ForEachBit(window[static_cast<size_t>(word)], word, [&](int64_t col) {
          scores.inside.push_back({operands.weights[col] * operands.product[col],
                                   static_cast<uint32_t>(row), static_cast<uint32_t>(col)});
        });
      }
    }
    scan.overflow = std::ssize(scores.inside) > limit;
  }

  absl::StatusOr<double> Finish() override {
    const bool overflow =
        std::any_of(scans_.begin(), scans_.end(), [](const auto& scan) { return scan.overflow; });
    const auto threshold =
        overflow ? std::nullopt
                 : FindThreshold(scans_, iterate_.free, window_.low(), window_.high(), merged_);
    if (!threshold) return SelectAnew();
    window_.Move(threshold->value, true);
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(std::ssize(scans_), [&](int64_t block) {
      BlockScan& scan = scans_[static_cast<size_t>(block)];
      for (const MatrixCandidate<Real>& candidate : scan.scores.inside) {
        if (!threshold->Selects(candidate)) continue;
        iterate_.vertex.Set(candidate.row, candidate.col);
        scan.inner -= static_cast<double>(iterate_.layer->weights(candidate.row, candidate.col)) *
                      static_cast<double>(iterate_.product(candidate.row, candidate.col));
      }
    }));
    return std::accumulate(scans_.begin(), scans_.end(), 0.0,
                           [](double sum, const BlockScan& scan) { return sum + scan.inner; });
  }

  void Release() override {
    for (BlockScan& scan : scans_) scan.scores = {};
    std::vector<MatrixCandidate<Real>>().swap(merged_);
  }

  std::span<std::byte> guesses() override { return std::as_writable_bytes(std::span(&window_, 1)); }

 private:
  struct BlockScan {
    double inner = 0;  // <W, E> over the coordinates neither fixed nor above
    bool overflow = false;
    WindowScores<Real> scores;
  };

  // The guess missed: several passes over the scores find the threshold.
  absl::StatusOr<double> SelectAnew() {
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(iterate_.layer->rows, [&](int64_t row) {
      std::fill_n(iterate_.vertex.row(row), iterate_.layer->words, 0);
    }));
    const auto visit = [&](int64_t row, auto&& sink) {
      const uint64_t* fixed = iterate_.fixed.row(row);
      const Real* weights = iterate_.layer->weights.row(row);
      const Real* product = iterate_.product.row(row);
      for (int64_t word = 0; word < iterate_.layer->words; ++word) {
        ForEachBit(~fixed[word], word, [&](int64_t col) {
          const Real score = weights[col] * product[col];
          if (score > 0) sink(col, OrderedKey(score));
        });
      }
    };
    const auto take = [&](int64_t row, int64_t col) { iterate_.vertex.Set(row, col); };
    std::optional<uint64_t> least;
    SPARSEFW_RETURN_IF_ERROR(context_.Run([&] {
      least = TakeTop({iterate_.blocks, 8 * sizeof(Real), iterate_.free}, visit, take);
      return absl::OkStatus();
    }));
    constexpr Real kAboveAll = std::numeric_limits<Real>::max();
    window_.Move(iterate_.free == 0 ? kAboveAll : (least ? ValueOfKey<Real>(*least) : 0), false);
    return InnerOfAll();
  }

  absl::StatusOr<double> InnerOfAll() {
    std::vector<double> sums(scans_.size());
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
      double& sum = sums[static_cast<size_t>(block)];
      for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
        sum += Kernels<Real>().masked_dot(iterate_.layer->words, iterate_.layer->weights.row(row),
                                          iterate_.product.row(row), iterate_.fixed.row(row),
                                          iterate_.vertex.row(row));
      }
    }));
    return std::accumulate(sums.begin(), sums.end(), 0.0);
  }

  Iterate<Real>& iterate_;
  const ParallelContext& context_;
  ScoreWindow<Real> window_;
  std::vector<BlockScan> scans_;
  std::vector<MatrixCandidate<Real>> merged_;
};

}  // namespace

template <typename Real>
std::unique_ptr<VertexSelector<Real>> MakeVertexSelector(Iterate<Real>& iterate,
                                                         const ParallelContext& context) {
  if (!iterate.groups.whole_matrix) return std::make_unique<RowSelector<Real>>(iterate);
  return std::make_unique<WholeMatrixSelector<Real>>(iterate, context);
}

template std::unique_ptr<VertexSelector<float>> MakeVertexSelector(Iterate<float>&,
                                                                   const ParallelContext&);
template std::unique_ptr<VertexSelector<double>> MakeVertexSelector(Iterate<double>&,
                                                                    const ParallelContext&);

}  // namespace sparsefw::cpu
