#include "core/src/cpu/frank_wolfe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "core/src/cpu/kernels.h"
#include "core/src/cpu/rounding.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// Above this share of toggled coordinates a dense product is faster than one
// row of G for each: it runs at several times the rate of the row updates,
// which wait for G from outside the L2 cache (sparsefw-bench-iteration).
constexpr double kDenseShare = 1.0 / 8;

// Drift after 500 iterations was measured as 2e-7 relative, so this is far
// on the safe side; two dense products in 500 iterations cost a few percent.
constexpr int64_t kRefreshPeriod = 500;

constexpr int64_t kProductRows = 2048;  // rows of D at a time

BitRows BitsOf(const Mask& mask) {
  BitRows bits(mask.rows(), mask.cols());
  for (int64_t row = 0; row < mask.rows(); ++row) {
    for (int64_t col = 0; col < mask.cols(); ++col) {
      if (mask.Get(row, col)) bits.Set(row, col);
    }
  }
  return bits;
}

std::vector<uint64_t> Union(const BitRows& a, const BitRows& b, int64_t row) {
  std::vector<uint64_t> result(static_cast<size_t>(a.words()));
  std::transform(a.row(row), a.row(row) + a.words(), b.row(row), result.begin(),
                 std::bit_or<uint64_t>());
  return result;
}

}  // namespace

template <typename Real>
absl::StatusOr<std::unique_ptr<Iteration>> FrankWolfe<Real>::Start(ScaledLayer<Real> layer,
                                                                   const StartPoint& start,
                                                                   Workers& workers) {
  std::unique_ptr<FrankWolfe> result(new FrankWolfe(workers));
  SPARSEFW_RETURN_IF_ERROR(result->Initialise(std::move(layer), start));
  return result;
}

// V_{-1} := M_0 works since M_0 is itself a vertex; then U_{-1} = E_0.
template <typename Real>
absl::Status FrankWolfe<Real>::Initialise(ScaledLayer<Real> layer, const StartPoint& start) {
  Iterate<Real>& it = iterate_;
  it.layer = std::move(layer);
  const int64_t rows = it.layer.rows;
  const int64_t cols = it.layer.cols;
  it.groups = GroupsOf(start.pattern, rows, cols);
  it.blocks = BlocksOf(rows, it.layer.stride());
  it.fixed = BitsOf(start.fixed);
  it.previous = BitsOf(start.warm);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < it.layer.words; ++word) {
      it.previous.row(row)[word] &= ~it.fixed.row(row)[word];
    }
  }
  it.vertex = BitRows(rows, cols);
  it.product = Matrix<Real>(rows, it.layer.stride());
  it.vertex_product = Matrix<Real>(rows, it.layer.stride());
  relaxed_ = RelaxedMask<Real>(it.previous, rows, cols);
  free_total_ = it.groups.total_kept - start.fixed.CountKept();
  block_sums_.resize(static_cast<size_t>(it.blocks.count()));

  SPARSEFW_RETURN_IF_ERROR(RecomputeVertexProduct());
  SPARSEFW_RETURN_IF_ERROR(workers_.ForEach(it.blocks.count(), [&](int64_t block) {
    const int64_t first = it.blocks.begin(block);
    std::copy_n(it.vertex_product.row(first),
                (it.blocks.end(block) - first) * it.vertex_product.cols(), it.product.row(first));
  }));
  stats_.relaxed_loss = vertex_loss_;
  selector_ = MakeVertexSelector(it, workers_);
  SPARSEFW_RETURN_IF_ERROR(Scan(0));
  Evaluate();
  stats_.lower_bound = stats_.relaxed_loss - stats_.gap;
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<StepStats> FrankWolfe<Real>::Step(const StepRequest& request) {
  if (unfinished_) return absl::CancelledError("the engine was stopped in the middle of a step");
  if (workers_.stopped()) return absl::CancelledError("the engine was told to stop");
  const auto reached_gap = [&] {
    return request.rel_gap > 0 && stats_.gap <= request.rel_gap * stats_.relaxed_loss;
  };
  for (int64_t taken = 0; taken < request.count && !reached_gap(); ++taken) {
    if (Stationary(request.rule)) {
      stats_.iteration += request.count - taken - 1;
      stats_.step_size = StepSize(request.rule);
      ++stats_.iteration;
      break;
    }
    unfinished_ = true;
    SPARSEFW_RETURN_IF_ERROR(Advance(request.rule));
    unfinished_ = false;
  }
  stats_.reached_gap = reached_gap();
  return stats_;
}

template <typename Real>
absl::StatusOr<RoundedMask> FrankWolfe<Real>::Round(ConstMatrixView saliency, Workers& workers) {
  return RoundMask(iterate_, relaxed_, saliency, workers);
}

// No step can move the iterate any more, so none needs to be computed.
template <typename Real>
bool FrankWolfe<Real>::Stationary(StepRule rule) const {
  return free_total_ == 0 || (rule == StepRule::kLineSearch && stats_.gap == 0);
}

template <typename Real>
double FrankWolfe<Real>::StepSize(StepRule rule) const {
  // Rounded, since E is: the same step in every recurrence.
  const auto rounded = [](double step) { return static_cast<double>(static_cast<Real>(step)); };
  if (rule == StepRule::kOpenLoop) return rounded(2.0 / static_cast<double>(stats_.iteration + 2));
  if (stats_.gap == 0) return 0;
  const double curvature = vertex_loss_ - 2 * vertex_inner_ + stats_.relaxed_loss;
  // Not positive by rounding only, or where G is not PSD: downhill all the way.
  return curvature <= 0 ? 1 : rounded(std::min(1.0, stats_.gap / (2 * curvature)));
}

template <typename Real>
absl::Status FrankWolfe<Real>::Advance(StepRule rule) {
  const bool refresh = (stats_.iteration + 1) % kRefreshPeriod == 0;
  const int64_t toggles = CountToggles();
  const bool dense = refresh_vertex_product_ || toggles > DenseFrom();
  if (!dense && !refresh && rule == StepRule::kOpenLoop) {
    SPARSEFW_RETURN_IF_ERROR(ApplyAndScan(StepSize(rule)));
  } else {
    SPARSEFW_RETURN_IF_ERROR(dense ? ApplyDense() : ApplySparse());
    const double step_size = StepSize(rule);
    SPARSEFW_RETURN_IF_ERROR(MoveTo(step_size));
    if (refresh) SPARSEFW_RETURN_IF_ERROR(RefreshProduct());
    SPARSEFW_RETURN_IF_ERROR(Scan(refresh ? 0 : step_size));
  }
  refresh_vertex_product_ = refresh;
  stats_.toggled += toggles;
  ++stats_.iteration;
  Evaluate();
  return absl::OkStatus();
}

// Open loop only: the step size is known before U_t is, so that a block's rows
// are updated, moved and scanned while they are in the cache.
template <typename Real>
absl::Status FrankWolfe<Real>::ApplyAndScan(double step_size) {
  SPARSEFW_RETURN_IF_ERROR(workers_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    block_sums_[static_cast<size_t>(block)] = ApplyRows(block);
    if (!workers_.stopped()) selector_->Scan(block, static_cast<Real>(step_size));
  }));
  vertex_loss_ += std::accumulate(block_sums_.begin(), block_sums_.end(), 0.0);
  SPARSEFW_RETURN_IF_ERROR(MoveTo(step_size));
  SPARSEFW_ASSIGN_OR_RETURN(vertex_inner_, selector_->Finish());
  return absl::OkStatus();
}

template <typename Real>
absl::Status FrankWolfe<Real>::ApplySparse() {
  SPARSEFW_RETURN_IF_ERROR(workers_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    block_sums_[static_cast<size_t>(block)] = ApplyRows(block);
  }));
  vertex_loss_ += std::accumulate(block_sums_.begin(), block_sums_.end(), 0.0);
  return absl::OkStatus();
}

template <typename Real>
absl::Status FrankWolfe<Real>::ApplyDense() {
  Iterate<Real>& it = iterate_;
  SPARSEFW_RETURN_IF_ERROR(workers_.ForEach(it.blocks.count(), [&](int64_t block) {
    for (int64_t row = it.blocks.begin(block); row < it.blocks.end(block); ++row) {
      ToggleRow(row, [](int64_t, bool) {});
    }
  }));
  return RecomputeVertexProduct();
}

template <typename Real>
absl::Status FrankWolfe<Real>::RecomputeVertexProduct() {
  Iterate<Real>& it = iterate_;
  const auto fill = [&](int64_t row, Real* out) {
    ZeroMasked(it.layer.words, it.layer.weights.row(row), Union(it.fixed, it.previous, row).data(),
               out);
  };
  SPARSEFW_RETURN_IF_ERROR(Product(fill, it.vertex_product));
  SPARSEFW_ASSIGN_OR_RETURN(vertex_loss_, SumOverRows([&](int64_t row) {
                              return MaskedDot(it.layer.words, it.layer.weights.row(row),
                                               it.vertex_product.row(row),
                                               Union(it.fixed, it.previous, row).data());
                            }));
  return absl::OkStatus();
}

template <typename Real>
absl::Status FrankWolfe<Real>::RefreshProduct() {
  Iterate<Real>& it = iterate_;
  SPARSEFW_RETURN_IF_ERROR(relaxed_.Fold(it.previous, workers_));
  // D(M) of the row; also for the loss, whose skipped columns are none.
  const auto fill = [&](int64_t row, Real* out) {
    std::fill_n(out, it.layer.stride(), Real{0});
    for (int64_t col = 0; col < it.layer.cols; ++col) {
      if (it.fixed.Get(row, col)) continue;
      const Real kept = relaxed_.Value(row, col, it.previous.Get(row, col));
      out[col] = it.layer.weights(row, col) * (1 - kept);
    }
  };
  SPARSEFW_RETURN_IF_ERROR(Product(fill, it.product));
  const std::vector<uint64_t> none(static_cast<size_t>(it.layer.words));
  SPARSEFW_ASSIGN_OR_RETURN(stats_.relaxed_loss, SumOverRows([&](int64_t row) {
                              Matrix<Real> pruned(1, it.layer.stride());
                              fill(row, pruned.data());
                              return MaskedDot(it.layer.words, pruned.data(), it.product.row(row),
                                               none.data());
                            }));
  return absl::OkStatus();
}

template <typename Real>
absl::Status FrankWolfe<Real>::Scan(double step_size) {
  SPARSEFW_RETURN_IF_ERROR(workers_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    selector_->Scan(block, static_cast<Real>(step_size));
  }));
  SPARSEFW_ASSIGN_OR_RETURN(vertex_inner_, selector_->Finish());
  return absl::OkStatus();
}

// M_{t+1} and L_{t+1}, from a_t and b_t: before the selection at E_{t+1}.
template <typename Real>
absl::Status FrankWolfe<Real>::MoveTo(double step_size) {
  const double stay = 1 - step_size;
  stats_.relaxed_loss = stay * stay * stats_.relaxed_loss + 2 * step_size * stay * vertex_inner_ +
                        step_size * step_size * vertex_loss_;
  stats_.step_size = step_size;
  return relaxed_.Advance(step_size, iterate_.previous, workers_);
}

template <typename Real>
void FrankWolfe<Real>::Evaluate() {
  stats_.gap = std::max(0.0, 2 * (stats_.relaxed_loss - vertex_inner_));
  stats_.lower_bound = std::max(stats_.lower_bound, stats_.relaxed_loss - stats_.gap);
}

// V_{t-1} -> V_t in one row of the relaxed mask and of `previous`.
template <typename Real>
template <typename Changed>
void FrankWolfe<Real>::ToggleRow(int64_t row, const Changed& changed) {
  uint64_t* from = iterate_.previous.row(row);
  const uint64_t* to = iterate_.vertex.row(row);
  for (int64_t word = 0; word < iterate_.layer.words; ++word) {
    ForEachBit(from[word] ^ to[word], word, [&](int64_t col) {
      const bool entered = iterate_.vertex.Get(row, col);
      relaxed_.Toggle(row, col, entered);
      changed(col, entered);
    });
    from[word] = to[word];
  }
}

// U_{t-1} -> U_t on the rows of a block. Returns its part of b_t - b_{t-1}: with
// delta = D(V_t) - D(V_{t-1}) and G symmetric, <delta, U_{t-1} + U_t>.
template <typename Real>
double FrankWolfe<Real>::ApplyRows(int64_t block) {
  double change = 0;
  std::vector<RowTerm<Real>> terms;
  for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
    if (workers_.stopped()) break;
    const Real* weights = iterate_.layer.weights.row(row);
    Real* product = iterate_.vertex_product.row(row);
    terms.clear();
    ToggleRow(row, [&](int64_t col, bool entered) {
      if (weights[col] == 0) return;
      terms.push_back({entered ? -weights[col] : weights[col], static_cast<uint32_t>(col)});
    });
    const auto inner = [&] {
      double sum = 0;
      for (const RowTerm<Real>& term : terms) {
        sum += static_cast<double>(term.factor) * static_cast<double>(product[term.index]);
      }
      return sum;
    };
    change += inner();
    AddScaledRows(std::span<const RowTerm<Real>>(terms), iterate_.layer.gram.data(),
                  iterate_.layer.words, product);
    change += inner();
  }
  return change;
}

template <typename Real>
int64_t FrankWolfe<Real>::CountToggles() const {
  int64_t count = 0;
  for (int64_t row = 0; row < iterate_.layer.rows; ++row) {
    const uint64_t* from = iterate_.previous.row(row);
    const uint64_t* to = iterate_.vertex.row(row);
    for (int64_t word = 0; word < iterate_.layer.words; ++word) {
      count += std::popcount(from[word] ^ to[word]);
    }
  }
  return count;
}

template <typename Real>
int64_t FrankWolfe<Real>::DenseFrom() const {
  return static_cast<int64_t>(kDenseShare * static_cast<double>(iterate_.layer.rows) *
                              static_cast<double>(iterate_.layer.cols));
}

template <typename Real>
absl::Status FrankWolfe<Real>::Product(absl::FunctionRef<void(int64_t, Real*)> fill,
                                       Matrix<Real>& out) {
  const ScaledLayer<Real>& layer = iterate_.layer;
  Matrix<Real> panel(std::min(layer.rows, kProductRows), layer.stride());
  for (int64_t first = 0; first < layer.rows; first += panel.rows()) {
    const RowBlocks blocks{std::min(panel.rows(), layer.rows - first),
                           iterate_.blocks.rows_per_block};
    SPARSEFW_RETURN_IF_ERROR(workers_.ForEach(blocks.count(), [&](int64_t block) {
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        fill(first + row, panel.row(row));
      }
    }));
    const GemmArgs<Real> args = {.rows = blocks.rows,
                                 .cols = layer.cols,
                                 .depth = layer.cols,
                                 .a = panel.data(),
                                 .a_stride = layer.stride(),
                                 .b = layer.gram.data(),
                                 .b_stride = layer.stride(),
                                 .c = out.row(first),
                                 .c_stride = layer.stride()};
    SPARSEFW_RETURN_IF_ERROR(workers_.Gemm(args));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<double> FrankWolfe<Real>::SumOverRows(absl::FunctionRef<double(int64_t)> row_sum) {
  SPARSEFW_RETURN_IF_ERROR(workers_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
    double& sum = block_sums_[static_cast<size_t>(block)];
    sum = 0;
    for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
      sum += row_sum(row);
    }
  }));
  return std::accumulate(block_sums_.begin(), block_sums_.end(), 0.0);
}

template <typename Real>
int64_t FrankWolfeBytes(int64_t rows, int64_t cols) {
  const int64_t words = (cols + 63) / 64;
  constexpr int64_t kSize = sizeof(Real);
  const int64_t weights = kSize * rows * words * 64;
  const int64_t gram = kSize * cols * words * 64;
  const int64_t panel = kSize * std::min(rows, kProductRows) * words * 64;
  const int64_t relaxed = kSize * rows * cols;
  const int64_t bits = 3 * 8 * rows * words;
  // Candidates of the selection: an eighth of the weights at most, each with
  // its score, row and column, in vectors that may have doubled, and one copy.
  const int64_t candidates = (kSize + 8) * (rows * words * 64 / 8) * 3;
  return 3 * weights + gram + panel + relaxed + bits + candidates;
}

template class FrankWolfe<float>;
template class FrankWolfe<double>;
template int64_t FrankWolfeBytes<float>(int64_t, int64_t);
template int64_t FrankWolfeBytes<double>(int64_t, int64_t);

}  // namespace sparsefw::cpu
