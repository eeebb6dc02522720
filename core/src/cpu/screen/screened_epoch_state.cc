// The state that the coming iterations need besides the iterate: the plans of the rows and, inside
// an epoch, the rows on their active columns.
#include <span>

#include "core/src/cpu/screen/screened_epoch.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// All of 8 bytes, so that there is no padding.
template <typename Real>
struct SavedRow {
  typename ActiveRow<Real>::State state;
  double radius;
  int64_t capacity, lanes;
};
static_assert(sizeof(SavedRow<float>) == sizeof(RowMovement) + 7 * sizeof(int64_t));
static_assert(sizeof(RowMovement) == 7 * sizeof(double), "its bytes are written as they are");

absl::Status NotARow(int64_t row) {
  return InvalidCheckpoint(
      "a checkpoint must have ascending active columns and a budget inside the layer in "
      "every row; got others in row %d",
      row);
}

}  // namespace

template <typename Real>
struct ScreenedEpoch<Real>::Scalars {
  int64_t running, begin, end, length, next_try, active, epochs, iterations;
  double active_share;
};

template <typename Real>
absl::Status ScreenedEpoch<Real>::Save(StateWriter& writer) {
  const Scalars scalars = {running_ ? 1 : 0,    begin_,  end_,           length_,
                           next_try_,           active_, counts_.epochs, counts_.iterations,
                           counts_.active_share};
  SPARSEFW_RETURN_IF_ERROR(writer.Field("epoch", BytesOf(scalars)));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("epoch_plan", BytesOf(shared_)));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("row_plans", std::as_bytes(std::span(plans_))));
  if (!running_) return absl::OkStatus();
  for (ActiveRow<Real>& row : rows_) {
    const SavedRow<Real> saved = {row.state(), row.radius, row.capacity, row.lanes()};
    SPARSEFW_RETURN_IF_ERROR(writer.Field("active_row", BytesOf(saved)));
    SPARSEFW_RETURN_IF_ERROR(writer.Field("active_cols", std::as_bytes(row.cols())));
    SPARSEFW_RETURN_IF_ERROR(writer.Field("active_values", std::as_bytes(row.values().span())));
    SPARSEFW_RETURN_IF_ERROR(writer.Field("active_bits", std::as_bytes(row.bits().span())));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status ScreenedEpoch<Real>::Restore(StateReader& reader) {
  Scalars scalars;
  SPARSEFW_RETURN_IF_ERROR(reader.Read("epoch", WritableBytesOf(scalars)));
  SPARSEFW_RETURN_IF_ERROR(reader.Read("epoch_plan", WritableBytesOf(shared_)));
  SPARSEFW_RETURN_IF_ERROR(reader.Read("row_plans", std::as_writable_bytes(std::span(plans_))));
  running_ = scalars.running != 0;
  begin_ = scalars.begin;
  end_ = scalars.end;
  length_ = scalars.length;
  next_try_ = scalars.next_try;
  active_ = scalars.active;
  counts_ = {scalars.epochs, scalars.iterations, scalars.active_share};
  if (!running_) return absl::OkStatus();
  rows_.resize(plans_.size());
  for (int64_t row = 0; row < iterate_.layer->rows; ++row) {
    SPARSEFW_RETURN_IF_ERROR(RestoreRow(row, reader));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status ScreenedEpoch<Real>::RestoreRow(int64_t index, StateReader& reader) {
  SavedRow<Real> saved;
  SPARSEFW_RETURN_IF_ERROR(reader.Read("active_row", WritableBytesOf(saved)));
  const int64_t most = iterate_.layer->cols;
  if (saved.lanes < 0 || saved.lanes > most) return NotARow(index);
  if (saved.capacity < 0 || saved.capacity > most) return NotARow(index);
  std::vector<uint32_t> cols(static_cast<size_t>(saved.lanes));
  SPARSEFW_RETURN_IF_ERROR(reader.Read("active_cols", std::as_writable_bytes(std::span(cols))));
  std::vector<uint64_t> active(static_cast<size_t>(iterate_.layer->words));
  for (size_t i = 0; i < cols.size(); ++i) {
    if (cols[i] >= iterate_.layer->cols || (i > 0 && cols[i] <= cols[i - 1])) return NotARow(index);
    SetBit(active.data(), cols[i]);
  }
  ActiveRow<Real>& row = rows_[static_cast<size_t>(index)];
  row.Load(layer_, index, active.data());
  SPARSEFW_RETURN_IF_ERROR(
      reader.Read("active_values", std::as_writable_bytes(row.values().span())));
  SPARSEFW_RETURN_IF_ERROR(reader.Read("active_bits", std::as_writable_bytes(row.bits().span())));
  // No bit may stand beyond the last lane.
  const int64_t left = saved.lanes & 63;
  const int64_t last = saved.lanes == 0 ? 0 : (saved.lanes - 1) >> 6;
  const uint64_t beyond = left == 0 && saved.lanes > 0 ? 0 : ~uint64_t{0} << left;
  for (int64_t set = 0; set < row.bits().rows(); ++set) row.bits()(set, last) &= ~beyond;
  row.state() = saved.state;
  row.radius = saved.radius;
  row.capacity = saved.capacity;
  return absl::OkStatus();
}

#define SPARSEFW_INSTANTIATE(Real)                                      \
  template absl::Status ScreenedEpoch<Real>::Save(StateWriter& writer); \
  template absl::Status ScreenedEpoch<Real>::Restore(StateReader& reader)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
