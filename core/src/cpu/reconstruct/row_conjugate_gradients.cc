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
RowConjugateGradients<Real>::RowConjugateGradients(const Matrix<Real>& gram, const Mask& mask,
                                                   int64_t first_row, int64_t rows)
    : gram_(gram),
      cols_(mask.cols()),
      mask_(mask),
      first_row_(first_row),
      preconditioner_(gram, mask, first_row, rows),
      solution_(rows, gram.cols()),
      residual_(rows, gram.cols()),
      direction_(rows, gram.cols()),
      product_(rows, gram.cols()) {}

template <typename Real>
absl::Status RowConjugateGradients<Real>::EachActive(const ParallelContext& context,
                                                     absl::FunctionRef<void(int64_t)> body) {
  return context.ForEachRow({std::ssize(active_), kRowsOfTask}, body);
}

template <typename Real>
template <typename From>
absl::Status RowConjugateGradients<Real>::Solve(const Matrix<From>& residual,
                                                std::span<const double> losses,
                                                const Limits& limits,
                                                const ParallelContext& context) {
  SPARSEFW_RETURN_IF_ERROR(Begin(residual, losses, limits.solved_before, context));
  for (int64_t iteration = 0; iteration < limits.iterations && !active_.empty(); ++iteration) {
    if (limits.out_of_time && limits.out_of_time()) break;
    SPARSEFW_RETURN_IF_ERROR(Gemm<Real>({std::ssize(active_), gram_.cols(), cols_}, direction_,
                                        gram_, product_, context));
    SPARSEFW_RETURN_IF_ERROR(EachActive(context, [&](int64_t i) { Advance(i, iteration); }));
    LeaveOutDone();
    SPARSEFW_RETURN_IF_ERROR(Turn(context));
  }
  return absl::OkStatus();
}

template <typename Real>
template <typename From>
absl::Status RowConjugateGradients<Real>::Begin(const Matrix<From>& residual,
                                                std::span<const double> losses, bool solved_before,
                                                const ParallelContext& context) {
  for (int64_t row = 0; row < residual.rows(); ++row) {
    active_.push_back(
        {.index = row, .loss = losses.empty() ? 0 : losses[static_cast<size_t>(row)]});
  }
  SPARSEFW_RETURN_IF_ERROR(preconditioner_.Prepare(context));
  SPARSEFW_RETURN_IF_ERROR(EachActive(context, [&](int64_t row) {
    for (int64_t col = 0; col < cols_; ++col) {
      if (Kept(row, col)) residual_(row, col) = static_cast<Real>(residual(row, col));
    }
  }));
  SPARSEFW_RETURN_IF_ERROR(Turn(context));
  losses_known_ = !losses.empty();
  if (!losses_known_) return absl::OkStatus();
  if (!solved_before) {
    for (Row& row : active_) row.loss *= 1 - kReconstructFloor;
    return absl::OkStatus();
  }
  for (Row& row : active_) row.done = row.rho <= kReconstructSolved * row.loss;
  LeaveOutDone();
  nothing_to_do_ = active_.empty();
  return absl::OkStatus();
}

template <typename Real>
void RowConjugateGradients<Real>::Advance(int64_t position, int64_t iteration) {
  Row& row = active_[static_cast<size_t>(position)];
  const Real* p = direction_.row(position);
  const Real* product = product_.row(position);
  double curvature = 0;
  for (int64_t col = 0; col < cols_; ++col) {
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
  Real* r = residual_.row(position);
  for (int64_t col = 0; col < cols_; ++col) {
    if (!Kept(row.index, col)) continue;
    d[col] += step * p[col];
    r[col] -= step * product[col];
  }
  const double gain = alpha * row.rho;
  row.loss -= gain;
  row.gains[static_cast<size_t>(iteration % kReconstructWindow)] = gain;
  const double recent = std::accumulate(row.gains.begin(), row.gains.end(), 0.0);
  if (!losses_known_) return;
  const bool settled =
      iteration + 1 >= kReconstructWindow && recent <= kReconstructTolerance * row.loss;
  row.done = settled || !(row.loss > 0);
}

// The next directions, from the residuals.
template <typename Real>
absl::Status RowConjugateGradients<Real>::Turn(const ParallelContext& context) {
  rows_.clear();
  for (const Row& row : active_) rows_.push_back(row.index);
  SPARSEFW_RETURN_IF_ERROR(preconditioner_.Apply(residual_, rows_, product_, context));
  SPARSEFW_RETURN_IF_ERROR(EachActive(context, [&](int64_t i) { TurnRow(i); }));
  LeaveOutDone();
  return absl::OkStatus();
}

template <typename Real>
void RowConjugateGradients<Real>::TurnRow(int64_t position) {
  Row& row = active_[static_cast<size_t>(position)];
  const Real* r = residual_.row(position);
  const Real* diagonal = preconditioner_.diagonal().data();
  Real* z = product_.row(position);
  Real* p = direction_.row(position);
  double rho = 0;
  for (int64_t col = 0; col < cols_; ++col) {
    z[col] = diagonal[col] * r[col] - z[col];
    rho += static_cast<double>(r[col]) * static_cast<double>(z[col]);
  }
  const auto beta = static_cast<Real>(row.rho > 0 ? rho / row.rho : 0);
  row.rho = rho;
  row.done = !(rho > 0);
  for (int64_t col = 0; col < cols_; ++col) {
    if (Kept(row.index, col)) p[col] = z[col] + beta * p[col];
  }
}

// Residuals and directions stay in the order of the rows, without gaps.
template <typename Real>
void RowConjugateGradients<Real>::LeaveOutDone() {
  int64_t to = 0;
  for (int64_t from = 0; from < std::ssize(active_); ++from) {
    const Row& row = active_[static_cast<size_t>(from)];
    if (row.done) continue;
    if (to != from) {
      std::copy_n(residual_.row(from), gram_.cols(), residual_.row(to));
      std::copy_n(direction_.row(from), gram_.cols(), direction_.row(to));
      active_[static_cast<size_t>(to)] = row;
    }
    ++to;
  }
  active_.resize(static_cast<size_t>(to));
}

int64_t RowConjugateGradientsBytes(int64_t rows, int64_t cols, int64_t size) {
  const int64_t stride = (cols + 63) / 64 * 64;
  return 4 * size * rows * stride + 128 * rows + NystromPreconditionerBytes(rows, cols, size);
}

template class RowConjugateGradients<float>;
template class RowConjugateGradients<double>;
template absl::Status RowConjugateGradients<float>::Solve(const Matrix<float>&,
                                                          std::span<const double>, const Limits&,
                                                          const ParallelContext&);
template absl::Status RowConjugateGradients<float>::Solve(const Matrix<double>&,
                                                          std::span<const double>, const Limits&,
                                                          const ParallelContext&);
template absl::Status RowConjugateGradients<double>::Solve(const Matrix<double>&,
                                                           std::span<const double>, const Limits&,
                                                           const ParallelContext&);

}  // namespace sparsefw::cpu
