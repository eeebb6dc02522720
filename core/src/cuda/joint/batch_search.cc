#include "core/src/cuda/joint/batch_search.h"

#include <algorithm>
#include <iterator>

#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/joint/joint_rules.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

size_t Index(int64_t index) { return static_cast<size_t>(index); }

}  // namespace

template <typename Real>
absl::Status BatchSearch<Real>::Allocate() {
  SPARSEFW_ASSIGN_OR_RETURN(
      memory_, DeviceBuffer<unsigned char>::Create(BatchBytes<Real>(layer_.rows, layer_.cols),
                                                   context_.stream()));
  return absl::OkStatus();
}

// Chooses how many rows there are in the batch, and its sizes.
template <typename Real>
void BatchSearch<Real>::Size(const std::vector<RowWindow>& windows,
                             std::span<const int64_t> order) {
  int64_t count = std::min(kMostBatchRows, std::ssize(order));
  const auto sizes_of = [&](int64_t rows) {
    int64_t fixed = 0;
    int64_t kept = 0;
    int64_t outside = 0;
    for (const int64_t row : order.first(Index(rows))) {
      const RowWindow& window = windows[Index(row)];
      fixed = std::max<int64_t>(fixed, std::ssize(window.fixed));
      kept = std::max<int64_t>(kept, std::ssize(window.kept));
      outside = std::max<int64_t>(outside, std::ssize(window.outside));
    }
    return JointSizes::For(fixed, kept, outside);
  };
  // Fewer rows need no larger sizes. Rows that are too different for the memory, which holds any
  // one of them, are searched apart.
  JointSizes sizes = sizes_of(count);
  for (int64_t fit = 0; count > 1; sizes = sizes_of(count)) {
    fit = RowsThatFit<Real>(sizes, layer_.cols, memory_.size());
    if (fit >= count) break;
    count = fit;
  }
  batch_ = {.count = count,
            .cols = layer_.cols,
            .stride = layer_.stride,
            .group_cols = rows_.groups().group_cols,
            .sizes = sizes,
            .gram = layer_.gram.data(),
            .products = products_};
  LayOut(memory_.data(), batch_);
}

template <typename Real>
absl::Status BatchSearch<Real>::Upload(const std::vector<RowWindow>& windows,
                                       std::span<const int64_t> order) {
  const JointSizes& sizes = batch_.sizes;
  std::vector<int> columns(Index(batch_.count * sizes.width()), -1);
  std::vector<int> places(Index(batch_.count * batch_.stride), kNoPlace);
  std::vector<JointRowProgress> progress;
  for (int64_t index = 0; index < batch_.count; ++index) {
    const int64_t row = order[Index(index)];
    const RowWindow& window = windows[Index(row)];
    int* const of_row = columns.data() + index * sizes.width();
    int* const place = places.data() + index * batch_.stride;
    std::copy(window.fixed.begin(), window.fixed.end(), of_row);
    std::copy(window.kept.begin(), window.kept.end(), of_row + sizes.fixed);
    std::copy(window.outside.begin(), window.outside.end(),
              of_row + sizes.eliminated() + sizes.kept);
    for (size_t i = 0; i < window.kept.size(); ++i) place[window.kept[i]] = static_cast<int>(i);
    for (size_t i = 0; i < window.outside.size(); ++i) {
      place[window.outside[i]] = static_cast<int>(sizes.kept) + static_cast<int>(i);
    }
    for (const int32_t column : window.excluded) place[column] = kExcludedPlace;
    progress.push_back({.loss = rows_.state(row).energy,
                        .tolerance = rows_.state(row).tolerance,
                        .exchanges = 0,
                        .pending = 0,
                        .done = 0,
                        .entering = 0,
                        .row = static_cast<int>(row)});
  }
  const cudaStream_t stream = context_.stream();
  SPARSEFW_RETURN_IF_ERROR(CopyAndWait(batch_.columns, columns.data(), std::ssize(columns),
                                       cudaMemcpyHostToDevice, stream));
  SPARSEFW_RETURN_IF_ERROR(CopyAndWait(batch_.places, places.data(), std::ssize(places),
                                       cudaMemcpyHostToDevice, stream));
  return CopyAndWait(batch_.rows, progress.data(), batch_.count, cudaMemcpyHostToDevice, stream);
}

template <typename Real>
absl::StatusOr<int> BatchSearch<Real>::Counter() {
  int count = 0;
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(&count, batch_.counter, 1, cudaMemcpyDeviceToHost, context_.stream()));
  return count;
}

// Passes until no row finds an exchange; false where they are cut short.
template <typename Real>
absl::StatusOr<bool> BatchSearch<Real>::Exchange() {
  for (int64_t pass = 0; pass < kMostPasses; ++pass) {
    if (budget_.Spent()) return false;
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchPass(batch_, context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(const int exchanged, Counter());
    if (exchanged == 0) return true;
  }
  return false;
}

// Puts excluded columns that pay at the positions from `first` on, and says how many at most.
template <typename Real>
absl::StatusOr<int64_t> BatchSearch<Real>::Admit(int64_t first) {
  const int64_t room = std::min(kRoomOfRow, batch_.sizes.end - first);
  if (room <= 0) return 0;
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchWeights(batch_, context_.stream()));
  SPARSEFW_RETURN_IF_ERROR(context_.MultiplyBySymmetric<Real>(
      batch_.count, batch_.cols, batch_.stride, batch_.solution, batch_.gram, batch_.rounded));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchAdmit(batch_, room, context_.stream()));
  SPARSEFW_ASSIGN_OR_RETURN(const int most, Counter());
  if (most > 0) SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchBorder(batch_, first, most, context_.stream()));
  return most;
}

template <typename Real>
absl::Status BatchSearch<Real>::Take(std::span<const int64_t> order) {
  const int64_t size = batch_.count * batch_.stride;
  std::vector<Real> solution(Index(size));
  std::vector<unsigned char> kept(Index(size));
  std::vector<JointRowProgress> progress(Index(batch_.count));
  const cudaStream_t stream = context_.stream();
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchWeights(batch_, stream));
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(solution.data(), batch_.solution, size, cudaMemcpyDeviceToHost, stream));
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(kept.data(), batch_.kept, size, cudaMemcpyDeviceToHost, stream));
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(progress.data(), batch_.rows, batch_.count, cudaMemcpyDeviceToHost, stream));
  return host_.ForEach(batch_.count, [&](int64_t index) {
    const auto* from = solution.data() + index * batch_.stride;
    const std::vector<float> weights(from, from + batch_.cols);
    const JointRowProgress& found = progress[Index(index)];
    rows_.Take(order[Index(index)], kept.data() + index * batch_.stride, weights.data(), found.loss,
               found.exchanges);
  });
}

template <typename Real>
absl::Status BatchSearch<Real>::Begin(const std::vector<RowWindow>& windows,
                                      std::span<const int64_t> order) {
  Size(windows, order);
  SPARSEFW_RETURN_IF_ERROR(Upload(windows, order));
  return ToStatus(LaunchBuild(batch_, context_.stream()));
}

template <typename Real>
absl::StatusOr<int64_t> BatchSearch<Real>::Run(const std::vector<RowWindow>& windows,
                                               std::span<const int64_t> order) {
  SPARSEFW_RETURN_IF_ERROR(Begin(windows, order));
  int64_t used = batch_.sizes.room;
  for (int admissions = 0;; ++admissions) {
    SPARSEFW_ASSIGN_OR_RETURN(const bool settled, Exchange());
    converged_ = converged_ && settled;
    if (!settled || admissions == kMostAdmissions) break;
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t admitted, Admit(used));
    if (admitted == 0) break;
    used += (admitted + 3) / 4 * 4;
  }
  SPARSEFW_RETURN_IF_ERROR(Take(order));
  return batch_.count;
}

template class BatchSearch<float>;
template class BatchSearch<double>;

}  // namespace sparsefw::cuda
