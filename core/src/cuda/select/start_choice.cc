#include "core/src/cuda/select/start_choice.h"

#include <cassert>
#include <vector>

#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

absl::StatusOr<DeviceSaliency> DeviceSaliency::Upload(const SaliencySource& source,
                                                      const RawMatrix& weights,
                                                      const ExecutionContext& context) {
  DeviceSaliency saliency;
  saliency.view_.weights = weights;
  if (source.terms() == nullptr) {
    saliency.given_ = source.values();
    return saliency;
  }
  const SaliencySource::Terms& terms = *source.terms();
  std::vector<double> all = terms.factor;
  all.insert(all.end(), terms.column.begin(), terms.column.end());
  all.insert(all.end(), terms.row.begin(), terms.row.end());
  SPARSEFW_ASSIGN_OR_RETURN(saliency.terms_, context.Upload(all));
  double* const data = saliency.terms_.data();
  saliency.view_.factor = data;
  if (!terms.row.empty()) {
    saliency.view_.column = data + weights.cols;
    saliency.view_.row = data + 2 * weights.cols;
  }
  return saliency;
}

absl::StatusOr<DeviceBuffer<float>> DeviceSaliency::Scores(const ExecutionContext& context) const {
  const RawMatrix& weights = view_.weights;
  const int64_t stride = StrideOf(weights.cols);
  SPARSEFW_ASSIGN_OR_RETURN(auto scores,
                            DeviceBuffer<float>::Create(weights.rows * stride, context.stream()));
  if (view_.factor == nullptr) {
    SPARSEFW_RETURN_IF_ERROR(StagedUpload(given_, scores.data(),
                                          static_cast<size_t>(stride) * sizeof(float),
                                          context.stream(), context.stop()));
  } else {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchSaliency(view_, scores.data(), context.stream()));
  }
  return scores;
}

absl::StatusOr<DeviceBuffer<BitWord>> SelectSalient(const SalientWeights& salient, int64_t cols,
                                                    const BitWord* among, const Groups& groups,
                                                    const ExecutionContext& context) {
  const cudaStream_t stream = context.stream();
  const int64_t rows = salient.weights.rows;
  SPARSEFW_ASSIGN_OR_RETURN(
      auto scratch, DeviceBuffer<unsigned char>::Zeroed(SelectionBytes(rows, cols), stream));
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t shared_bytes, SharedBytesForRows());
  SPARSEFW_ASSIGN_OR_RETURN(auto bits,
                            DeviceBuffer<BitWord>::Create(rows * StrideOf(cols) / 32, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchSelectSalient({rows, cols, scratch.data(), shared_bytes},
                                                    salient, among, groups, bits.data(), stream));
  return bits;
}

absl::Status ChooseStart(const EngineProblem& problem, const DeviceSaliency& saliency,
                         const ExecutionContext& context) {
  const StartChoice& choice = *problem.choice;
  assert(problem.saliency.terms() != nullptr);
  SPARSEFW_RETURN_IF_ERROR(context.CheckStop());
  if (choice.warm_is_given && choice.fix_all) {
    *choice.fixed = *choice.warm;
    return absl::OkStatus();
  }
  const cudaStream_t stream = context.stream();
  const int64_t rows = problem.weights.rows();
  const int64_t cols = problem.weights.cols();
  DeviceBuffer<BitWord> warm;
  if (choice.warm_is_given) {
    SPARSEFW_ASSIGN_OR_RETURN(warm, UploadMask(*choice.warm, stream));
  } else {
    const Groups groups = GroupsOf(problem.pattern, rows, cols);
    SPARSEFW_ASSIGN_OR_RETURN(warm, SelectSalient(saliency.view(), cols, nullptr, groups, context));
    SPARSEFW_ASSIGN_OR_RETURN(*choice.warm, DownloadMask(warm.data(), rows, cols, stream));
  }
  if (choice.fix_all) {
    *choice.fixed = *choice.warm;
    return absl::OkStatus();
  }
  const Groups groups = FixedGroups(problem.pattern, rows, cols, choice.alpha);
  SPARSEFW_ASSIGN_OR_RETURN(const auto fixed,
                            SelectSalient(saliency.view(), cols, warm.data(), groups, context));
  SPARSEFW_ASSIGN_OR_RETURN(*choice.fixed, DownloadMask(fixed.data(), rows, cols, stream));
  return absl::OkStatus();
}

int64_t StartChoiceBytes(int64_t rows, int64_t cols) {
  const int64_t bits = rows * StrideOf(cols) / 8;
  return SelectionBytes(rows, cols) + 2 * bits;
}

}  // namespace sparsefw::cuda
