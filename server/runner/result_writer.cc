#include "server/runner/result_writer.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/runner/pruned_weight.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Tensors expire shortly after the job's record, never before it.
constexpr absl::Duration kResultMargin = absl::Minutes(1);

TensorSpec MaskSpec(int64_t rows, int64_t cols) {
  return {TensorKind::kMask, DType::kBool, rows, cols, 0};
}

TensorSpec PrunedWeightSpec(const TensorSpec& weight) {
  return {TensorKind::kPrunedWeight, weight.dtype, weight.rows, weight.cols, 0};
}

int64_t MasksKept(const JobSpec& spec) {
  if (spec.sweep.empty()) return 1;
  if (spec.sweep_keep == SweepKeep::kAll) return std::ssize(spec.sweep);
  std::vector<Pattern> patterns;
  for (const SweepPoint& point : spec.sweep) {
    if (std::find(patterns.begin(), patterns.end(), point.pattern) == patterns.end()) {
      patterns.push_back(point.pattern);
    }
  }
  return std::ssize(patterns);
}

}  // namespace

RoomNeed ResultRoom(const JobSpec& spec, const MatrixSpec& weight) {
  const int64_t masks = MasksKept(spec);
  RoomNeed need{masks * ByteSize(MaskSpec(weight.rows, weight.cols)), masks};
  if (spec.return_pruned_weight) {
    need.bytes += weight.rows * weight.cols * static_cast<int64_t>(SizeOf(weight.dtype));
    ++need.places;
  }
  return need;
}

ResultWriter::ResultWriter(TensorStore* store, const Job& job, const TensorHandle& weight,
                           TensorRoom* room)
    : store_(store), job_(job), weight_(weight), room_(room) {}

absl::Time ResultWriter::ExpireTime() const {
  return absl::Now() + job_.spec.result_ttl + kResultMargin;
}

absl::StatusOr<std::string> ResultWriter::PutMask(const Mask& mask) {
  SPARSEFW_ASSIGN_OR_RETURN(
      TensorInfo stored, store_->Put(MaskSpec(mask.rows(), mask.cols()), mask.bytes(), job_.owner,
                                     ExpireTime(), room_, job_.name));
  return std::move(stored.name);
}

void ResultWriter::PutWeights(const SolveResult& solved, JobResult* result) {
  if (!job_.spec.return_pruned_weight) return;
  absl::StatusOr<std::string> name = PutWeights(solved);
  if (name.ok()) {
    result->pruned_weight = *std::move(name);
    return;
  }
  const absl::Status& cause = name.status();
  result->incomplete = WithReasonText(
      absl::Status(
          cause.code(),
          absl::StrFormat("the pruned weight could not be stored (the mask was, as %s): %s",
                          result->mask, std::string(cause.message()))),
      ReasonOf(cause), ReasonMetadataOf(cause));
}

absl::StatusOr<std::string> ResultWriter::PutWeights(const SolveResult& solved) {
  const TensorSpec spec = PrunedWeightSpec(weight_.info().spec);
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            solved.weights.size() > 0
                                ? WeightBytes(solved.weights, weight_.matrix().dtype())
                                : PrunedWeight(weight_.matrix(), solved.mask));
  SPARSEFW_ASSIGN_OR_RETURN(TensorInfo stored,
                            store_->Put(spec, bytes, job_.owner, ExpireTime(), room_, job_.name));
  return std::move(stored.name);
}

}  // namespace sparsefw::server
