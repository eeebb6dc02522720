#include "core/src/cpu/reconstruct/row_conjugate_gradients.h"

#include <algorithm>
#include <numeric>

#include "core/src/linalg/blas.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kRowsOfTask = 4;

}  // namespace

template <typename Real>
RowConjugateGradients<Real>::RowConjugateGradients(const ScaledLayer<Real>& layer, const Mask& mask,
                                                   int64_t first_row,
                                                   const Matrix<double>& residual,
                                                   const std::vector<double>& losses)
    : layer_(layer),
      mask_(mask),
      first_row_(first_row),
      preconditioner_(static_cast<size_t>(layer.cols)),
      solution_(residual.rows(), layer.stride()),
      residual_(residual.rows(), layer.stride()),
      direction_(residual.rows(), layer.stride()),
      product_(residual.rows(), layer.stride()) {
  for (int64_t col = 0; col < layer.cols; ++col) {
    const Real diagonal = layer.gram(col, col);
    preconditioner_[static_cast<size_t>(col)] = diagonal > 0 ? 1 / diagonal : 0;
  }
  for (int64_t row = 0; row < residual.rows(); ++row) {
    Row state = {.index = row, .loss = losses[static_cast<size_t>(row)]};
    for (int64_t col = 0; col < layer.cols; ++col) {
      if (!Kept(row, col)) continue;
      const auto r = static_cast<Real>(residual(row, col));
      const Real z = preconditioner_[static_cast<size_t>(col)] * r;
      residual_(row, col) = r;
      direction_(row, col) = z;
      state.rho += static_cast<double>(r) * static_cast<double>(z);
    }
    state.done = !(state.rho > 0);
    active_.push_back(state);
  }
}

template <typename Real>
absl::Status RowConjugateGradients<Real>::Solve(const std::function<bool()>& out_of_time,
                                                const ParallelContext& context) {
  LeaveOutDone();
  for (int64_t iteration = 0; iteration < kReconstructIterations && !active_.empty(); ++iteration) {
    if (out_of_time && out_of_time()) break;
    const GemmArgs<Real> args = {.rows = std::ssize(active_),
                                 .cols = layer_.stride(),
                                 .depth = layer_.cols,
                                 .a = direction_.data(),
                                 .a_stride = layer_.stride(),
                                 .b = layer_.gram.data(),
                                 .b_stride = layer_.stride(),
                                 .c = product_.data(),
                                 .c_stride = layer_.stride()};
    SPARSEFW_RETURN_IF_ERROR(Gemm(args, context));
    const RowBlocks blocks{std::ssize(active_), kRowsOfTask};
    SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
      for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) Step(i, iteration);
    }));
    LeaveOutDone();
  }
  return absl::OkStatus();
}

template <typename Real>
void RowConjugateGradients<Real>::Step(int64_t position, int64_t iteration) {
  Row& row = active_[static_cast<size_t>(position)];
  Real* p = direction_.row(position);
  const Real* product = product_.row(position);
  double curvature = 0;
  for (int64_t col = 0; col < layer_.cols; ++col) {
    curvature += static_cast<double>(p[col]) * static_cast<double>(product[col]);
  }
  // Zero in the null space of a singular G_SS, where nothing is left to gain.
  if (!(curvature > 0)) {
    row.done = true;
    return;
  }
  const double alpha = row.rho / curvature;
  const auto step = static_cast<Real>(alpha);
  Real* d = solution_.row(row.index);
  Real* r = residual_.row(row.index);
  double rho = 0;
  for (int64_t col = 0; col < layer_.cols; ++col) {
    if (!Kept(row.index, col)) continue;
    d[col] += step * p[col];
    r[col] -= step * product[col];
    const Real z = preconditioner_[static_cast<size_t>(col)] * r[col];
    rho += static_cast<double>(r[col]) * static_cast<double>(z);
  }
  const double gain = alpha * row.rho;
  row.loss -= gain;
  row.gains[static_cast<size_t>(iteration % kReconstructWindow)] = gain;
  const double recent = std::accumulate(row.gains.begin(), row.gains.end(), 0.0);
  const bool settled =
      iteration + 1 >= kReconstructWindow && recent <= kReconstructTolerance * row.loss;
  row.done = settled || !(rho > 0) || !(row.loss > 0);
  const auto beta = static_cast<Real>(rho / row.rho);
  row.rho = rho;
  for (int64_t col = 0; col < layer_.cols; ++col) {
    if (Kept(row.index, col)) {
      p[col] = preconditioner_[static_cast<size_t>(col)] * r[col] + beta * p[col];
    }
  }
}

// Directions stay in the order of the rows, without gaps.
template <typename Real>
void RowConjugateGradients<Real>::LeaveOutDone() {
  int64_t to = 0;
  for (int64_t from = 0; from < std::ssize(active_); ++from) {
    const Row& row = active_[static_cast<size_t>(from)];
    if (row.done) continue;
    if (to != from) {
      std::copy_n(direction_.row(from), layer_.stride(), direction_.row(to));
      active_[static_cast<size_t>(to)] = row;
    }
    ++to;
  }
  active_.resize(static_cast<size_t>(to));
}

template class RowConjugateGradients<float>;
template class RowConjugateGradients<double>;

}  // namespace sparsefw::cpu
