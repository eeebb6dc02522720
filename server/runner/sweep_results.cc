#include "server/runner/sweep_results.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_format.h"
#include "sparsefw/dtype.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

TensorSpec MaskSpec(int64_t rows, int64_t cols) {
  return {TensorKind::kMask, DType::kBool, rows, cols, 0};
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

absl::StatusOr<std::vector<std::byte>> Zeros(int64_t rows, int64_t cols, size_t element) {
  try {
    return std::vector<std::byte>(static_cast<size_t>(rows) * static_cast<size_t>(cols) * element);
  } catch (const std::bad_alloc&) {
    return Refuse(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                  "no memory for a pruned weight of [%d, %d]", rows, cols);
  }
}

// A dense row-major matrix in the weights' dtype: kept weights are copied bit for bit, removed
// ones are +0.
absl::StatusOr<std::vector<std::byte>> PrunedWeight(ConstMatrixView weights, const Mask& mask) {
  const size_t element = SizeOf(weights.dtype());
  const size_t row_bytes = static_cast<size_t>(weights.cols()) * element;
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                            Zeros(weights.rows(), weights.cols(), element));
  for (int64_t row = 0; row < weights.rows(); ++row) {
    const std::byte* from = weights.row_bytes(row);
    std::byte* to = bytes.data() + static_cast<size_t>(row) * row_bytes;
    for (int64_t col = 0; col < weights.cols(); ++col) {
      if (!mask.Get(row, col)) continue;
      const size_t at = static_cast<size_t>(col) * element;
      std::memcpy(to + at, from + at, element);
    }
  }
  return bytes;
}

// New weights, whose values are values of `dtype` (F32, F16 or BF16), in that dtype.
absl::StatusOr<std::vector<std::byte>> WeightBytes(const Matrix<float>& weights, DType dtype) {
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                            Zeros(weights.rows(), weights.cols(), SizeOf(dtype)));
  const auto convert = [&](auto to_stored) {
    std::byte* to = bytes.data();
    for (int64_t row = 0; row < weights.rows(); ++row) {
      for (int64_t col = 0; col < weights.cols(); ++col) {
        const auto value = to_stored(weights(row, col));
        std::memcpy(to, &value, sizeof(value));
        to += sizeof(value);
      }
    }
  };
  if (dtype == DType::kF16) {
    convert([](float value) { return ToHalf(value); });
  } else if (dtype == DType::kBF16) {
    convert([](float value) { return ToBFloat16(value); });
  } else {
    convert([](float value) { return value; });
  }
  return bytes;
}

bool MakesWeights(const SweepPoint& point) {
  return HasOwnWeights(point.options.method) || point.options.reconstruct || point.options.joint;
}

// Why a job without any result has none. A stop counts before the errors of points that ended
// before it: a job that is stopped is cancelled, or runs again.
absl::Status WhyNone(const std::vector<SweepOutcome>& outcomes) {
  const SweepOutcome* late = nullptr;
  for (const SweepOutcome& outcome : outcomes) {
    if (absl::IsCancelled(outcome.error)) return outcome.error;
    if (late == nullptr && absl::IsDeadlineExceeded(outcome.error)) late = &outcome;
  }
  return late != nullptr ? late->error : outcomes.front().error;
}

// The stop cause of the whole job: that of a point that was cut short, if any.
StopCause StopOf(const std::vector<SweepOutcome>& outcomes, StopCause of_best) {
  StopCause cause = of_best;
  for (const SweepOutcome& outcome : outcomes) {
    if (absl::IsCancelled(outcome.error)) return StopCause::kCancelled;
    if (outcome.error.ok() && outcome.result.solve.stop_cause == StopCause::kCancelled) {
      return StopCause::kCancelled;
    }
    if (absl::IsDeadlineExceeded(outcome.error)) cause = StopCause::kDeadline;
  }
  return cause;
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

int64_t KeptBytes(const JobSpec& spec, int64_t rows, int64_t cols) {
  if (spec.sweep.size() < 2) return 0;
  const bool stored = spec.sweep_keep == SweepKeep::kAll;
  const int64_t masks = stored ? (spec.return_pruned_weight ? 1 : 0) : MasksKept(spec);
  const bool weights =
      spec.return_pruned_weight && std::any_of(spec.sweep.begin(), spec.sweep.end(), MakesWeights);
  return masks * ByteSize(MaskSpec(rows, cols)) +
         (weights ? rows * cols * static_cast<int64_t>(sizeof(float)) : 0);
}

SweepResults::SweepResults(TensorStore* store, const Job& job, const TensorHandle& weight,
                           TensorRoom* room, std::span<const SweepPoint> points,
                           const ReportFunction& report)
    : store_(store), job_(job), weight_(weight), room_(room), points_(points), report_(report) {}

SweepResults::Best* SweepResults::BestOf(const Pattern& pattern) {
  for (Best& best : best_) {
    if (points_[best.point].pattern == pattern) return &best;
  }
  return nullptr;
}

SweepResults::Best& SweepResults::Returned() {
  Best* const first = BestOf(points_.front().pattern);
  return first != nullptr ? *first : best_.front();
}

// A result lives as long as its job, whose deletion takes it along.
absl::StatusOr<std::string> SweepResults::Put(const TensorSpec& spec,
                                              std::span<const std::byte> bytes) {
  SPARSEFW_ASSIGN_OR_RETURN(
      TensorInfo stored,
      store_->Put(spec, bytes, job_.owner, absl::InfiniteFuture(), room_, job_.name));
  return std::move(stored.name);
}

absl::StatusOr<std::string> SweepResults::PutMask(const Mask& mask) {
  return Put(MaskSpec(mask.rows(), mask.cols()), mask.bytes());
}

// The new weights, or W with the removed weights set to zero.
absl::StatusOr<std::string> SweepResults::PutWeights(const Best& best) {
  const TensorSpec& weight = weight_.info().spec;
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            best.weights.size() > 0
                                ? WeightBytes(best.weights, weight_.matrix().dtype())
                                : PrunedWeight(weight_.matrix(), best.mask));
  return Put({TensorKind::kPrunedWeight, weight.dtype, weight.rows, weight.cols, 0}, bytes);
}

absl::Status SweepResults::OnResult(size_t point, absl::StatusOr<SolveResult> result) {
  SweepOutcome& outcome = outcomes_.emplace_back();
  if (!result.ok()) {
    // The other points need the device too.
    if (HasReason(result.status(), "DEVICE_LOST")) return result.status();
    outcome.error = std::move(result).status();
    return absl::OkStatus();
  }
  if (job_.spec.sweep_keep == SweepKeep::kAll) {
    absl::StatusOr<std::string> mask = PutMask(result->mask);
    // A mask that cannot be stored, on a full disk say, does not end the others.
    if (!mask.ok()) {
      outcome.error = std::move(mask).status();
      return absl::OkStatus();
    }
    outcome.result.mask = *std::move(mask);
  }
  outcome.result.solve = *result;
  outcome.result.weights_updated = result->weights.size() > 0;
  const double loss =
      outcome.result.weights_updated ? result->reconstructed_loss : result->final_loss;
  Keep({point, loss, std::move(result->mask), std::move(result->weights)});
  return absl::OkStatus();
}

void SweepResults::Keep(Best next) {
  Best* const best = BestOf(points_[next.point].pattern);
  if (best == nullptr) {
    best_.push_back(std::move(next));
  } else if (next.loss < best->loss) {
    *best = std::move(next);
  } else {
    return;
  }
  const Best* const returned = job_.spec.return_pruned_weight ? &Returned() : nullptr;
  for (Best& one : best_) {
    if (&one == returned) continue;
    one.weights = Matrix<float>();
    if (job_.spec.sweep_keep == SweepKeep::kAll) one.mask = Mask();
  }
}

std::vector<std::string> SweepResults::StoredMasks() const {
  std::vector<std::string> masks;
  for (const SweepOutcome& outcome : outcomes_) {
    if (!outcome.result.mask.empty()) masks.push_back(outcome.result.mask);
  }
  return masks;
}

absl::StatusOr<JobResult> SweepResults::Finish() {
  if (best_.empty()) return WhyNone(outcomes_);
  if (job_.spec.sweep_keep == SweepKeep::kBest) {
    for (const Best& best : best_) {
      SPARSEFW_ASSIGN_OR_RETURN(outcomes_[best.point].result.mask, PutMask(best.mask));
    }
  }
  const Best& best = Returned();
  JobResult result = outcomes_[best.point].result;
  result.best_point = static_cast<int>(best.point);
  result.solve.stop_cause = StopOf(outcomes_, result.solve.stop_cause);
  if (job_.spec.return_pruned_weight) {
    if (absl::StatusOr<std::string> name = PutWeights(best); name.ok()) {
      result.pruned_weight = *std::move(name);
    } else {
      // The mask is worth keeping.
      const absl::Status& cause = name.status();
      result.incomplete = WithReasonText(
          absl::Status(
              cause.code(),
              absl::StrFormat("the pruned weight could not be stored (the mask was, as %s): %s",
                              result.mask, std::string(cause.message()))),
          ReasonOf(cause), ReasonMetadataOf(cause));
    }
  }
  result.sweep = std::move(outcomes_);
  return result;
}

}  // namespace sparsefw::server
