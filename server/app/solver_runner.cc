#include "server/app/solver_runner.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/app/devices.h"
#include "server/app/pruned_weight.h"
#include "sparsefw/problem.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr size_t kMaxChecked = 65536;
// A result outlives its job's record by a little, never the other way round.
constexpr absl::Duration kResultMargin = absl::Minutes(1);

class Reporter final : public SolveObserver {
 public:
  explicit Reporter(const std::function<void(const ProgressReport&)>& report) : report_(report) {}
  void OnReport(const ProgressReport& report) override { report_(report); }

 private:
  const std::function<void(const ProgressReport&)>& report_;
};

const char* KindName(TensorKind kind) {
  switch (kind) {
    case TensorKind::kWeight:
      return "WEIGHT";
    case TensorKind::kGram:
      return "GRAM";
    case TensorKind::kSaliency:
      return "SALIENCY";
    case TensorKind::kMask:
      return "MASK";
    case TensorKind::kPrunedWeight:
      return "PRUNED_WEIGHT";
  }
  return "UNKNOWN";
}

absl::Status CheckShape(std::string_view field, const TensorSpec& spec, int64_t rows,
                        int64_t cols) {
  if (spec.rows == rows && spec.cols == cols) return absl::OkStatus();
  return WithReason(absl::InvalidArgumentError(
                        absl::StrFormat("%s must be [%d, %d] to fit the weight; got [%d, %d]",
                                        field, rows, cols, spec.rows, spec.cols)),
                    "SHAPE_MISMATCH");
}

TensorSpec MaskSpec(int64_t rows, int64_t cols) {
  return {TensorKind::kMask, TensorDType::kU1, rows, cols, 0};
}

TensorSpec PrunedWeightSpec(const TensorSpec& weight) {
  return {TensorKind::kPrunedWeight, weight.dtype, weight.rows, weight.cols, 0};
}

absl::Status CheckMemory(const Backend& backend, int64_t rows, int64_t cols, int64_t needed,
                         int64_t limit) {
  if (needed > limit) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrFormat(
            "a layer of [%d, %d] needs about %d bytes of working memory; running jobs may use %d "
            "together",
            rows, cols, needed, limit)),
        "DEVICE_MEMORY");
  }
  const int64_t there = backend.Describe().memory_bytes;
  if (there <= 0 || needed <= there) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(absl::StrFormat(
                        "a layer of [%d, %d] needs about %d bytes on %s, which has %d", rows, cols,
                        needed, backend.name(), there)),
                    "DEVICE_MEMORY");
}

}  // namespace

struct SolverRunner::SolverInputs final : JobRunner::Inputs {
  explicit SolverInputs(TransientTensors* tensors) : transient(tensors) {}
  ~SolverInputs() override {
    std::vector<std::string> names;
    for (auto* handle : {&weight, &gram, &saliency, &warm_mask_tensor}) {
      if (*handle == nullptr) continue;
      names.push_back((*handle)->info().name);
      handle->reset();
    }
    for (const std::string& name : names) transient->Release(name);
  }

  TransientTensors* const transient;
  std::shared_ptr<const TensorHandle> weight;
  std::shared_ptr<const TensorHandle> gram;
  std::shared_ptr<const TensorHandle> saliency;          // may be null
  std::shared_ptr<const TensorHandle> warm_mask_tensor;  // may be null
  std::optional<Mask> warm_mask;
  const Backend* backend = nullptr;
  ByteBudget::Reservation result_room;
};

SolverRunner::SolverRunner(TensorStore* store, TransientTensors* transient,
                           SolverRunnerOptions options)
    : store_(store), transient_(transient), options_(options) {}

absl::StatusOr<SolverRunner::Handle> SolverRunner::Acquire(std::string_view field,
                                                           const std::string& name,
                                                           TensorKind kind) {
  if (name.empty()) {
    return WithReason(
        absl::InvalidArgumentError(absl::StrFormat("%s must name a tensor; got none", field)),
        "SPEC_INVALID");
  }
  absl::StatusOr<Handle> handle = store_->Acquire(name);
  if (absl::IsNotFound(handle.status())) {
    return WithReason(absl::FailedPreconditionError(absl::StrFormat(
                          "%s must name a tensor that the server has; got %s", field, name)),
                      "TENSOR_NOT_FOUND", {{"field", std::string(field)}, {"tensor", name}});
  }
  SPARSEFW_RETURN_IF_ERROR(handle.status());
  const TensorKind got = (*handle)->info().spec.kind;
  if (got == kind) return handle;
  return WithReason(
      absl::InvalidArgumentError(absl::StrFormat("%s must be a %s; got %s, a %s", field,
                                                 KindName(kind), name, KindName(got))),
      "WRONG_TENSOR_KIND");
}

absl::Status SolverRunner::CheckOnce(const TensorHandle& tensor,
                                     const std::function<absl::Status()>& check) {
  const std::string& name = tensor.info().name;
  {
    MutexLock lock(mutex_);
    if (checked_.contains(name)) return absl::OkStatus();
  }
  SPARSEFW_RETURN_IF_ERROR(check());
  MutexLock lock(mutex_);
  if (checked_.insert(name).second) checked_order_.push_back(name);
  if (checked_order_.size() > kMaxChecked) {
    checked_.erase(checked_order_.front());
    checked_order_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status SolverRunner::PrepareWarmStart(const JobSpec& spec, SolverInputs* inputs) {
  if (!spec.warm_saliency.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(inputs->saliency, Acquire("warm_start.saliency", spec.warm_saliency,
                                                        TensorKind::kSaliency));
    SPARSEFW_RETURN_IF_ERROR(CheckShape("warm_start.saliency", inputs->saliency->info().spec,
                                        inputs->rows, inputs->cols));
  }
  if (spec.warm_mask.empty()) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(inputs->warm_mask_tensor,
                            Acquire("warm_start.mask", spec.warm_mask, TensorKind::kMask));
  SPARSEFW_RETURN_IF_ERROR(CheckShape("warm_start.mask", inputs->warm_mask_tensor->info().spec,
                                      inputs->rows, inputs->cols));
  SPARSEFW_ASSIGN_OR_RETURN(inputs->warm_mask, inputs->warm_mask_tensor->mask());
  return ValidateMaskCounts(*inputs->warm_mask, spec.pattern, "warm_start.mask");
}

// What is cheap to know comes before what reads every value.
absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> SolverRunner::Prepare(const JobSpec& spec) {
  SPARSEFW_RETURN_IF_ERROR(ValidateOptions(spec.options));
  auto inputs = std::make_shared<SolverInputs>(transient_);
  SPARSEFW_ASSIGN_OR_RETURN(inputs->backend, ResolveDevice(spec.device, *options_.default_backend));
  SPARSEFW_ASSIGN_OR_RETURN(inputs->weight, Acquire("weight", spec.weight, TensorKind::kWeight));
  SPARSEFW_ASSIGN_OR_RETURN(inputs->gram, Acquire("gram", spec.gram, TensorKind::kGram));
  const int64_t rows = inputs->rows = inputs->weight->info().spec.rows;
  const int64_t cols = inputs->cols = inputs->weight->info().spec.cols;
  SPARSEFW_RETURN_IF_ERROR(ValidatePattern(spec.pattern, rows, cols));
  SPARSEFW_RETURN_IF_ERROR(CheckShape("gram", inputs->gram->info().spec, cols, cols));
  inputs->working_bytes = inputs->backend->EstimateHostBytes(rows, cols);
  SPARSEFW_RETURN_IF_ERROR(CheckMemory(*inputs->backend, rows, cols, inputs->working_bytes,
                                       options_.solve_memory_bytes));
  SPARSEFW_RETURN_IF_ERROR(ReserveResult(spec, inputs.get()));

  SPARSEFW_RETURN_IF_ERROR(PrepareWarmStart(spec, inputs.get()));

  const auto finite = [](const TensorHandle& tensor, std::string_view field) {
    return [&tensor, field] { return ValidateFinite(tensor.matrix(), field); };
  };
  SPARSEFW_RETURN_IF_ERROR(CheckOnce(*inputs->weight, finite(*inputs->weight, "weight")));
  SPARSEFW_RETURN_IF_ERROR(
      CheckOnce(*inputs->gram, [&inputs] { return ValidateGram(inputs->gram->matrix()); }));
  if (inputs->saliency != nullptr) {
    SPARSEFW_RETURN_IF_ERROR(
        CheckOnce(*inputs->saliency, finite(*inputs->saliency, "warm_start.saliency")));
  }
  return inputs;
}

absl::StatusOr<JobResult> SolverRunner::Run(
    const Job& job, Inputs& inputs, const StopSignal& stop,
    const std::function<void(const ProgressReport&)>& report) {
  auto& in = static_cast<SolverInputs&>(inputs);
  Problem problem;
  problem.weights = in.weight->matrix();
  problem.gram = in.gram->matrix();
  problem.pattern = job.spec.pattern;
  if (in.saliency != nullptr) problem.saliency = in.saliency->matrix();
  if (in.warm_mask.has_value()) problem.warm_mask = &*in.warm_mask;

  SolveOptions options = job.spec.options;
  options.deadline = job.create_time + job.spec.deadline;
  options.threads = options_.threads_per_job;
  Reporter reporter(report);
  SPARSEFW_ASSIGN_OR_RETURN(SolveResult solved,
                            Solve(problem, options, *in.backend, &reporter, &stop));

  JobResult result;
  result.device = std::string(in.backend->name());
  result.queue_time = job.start_time - job.create_time;
  const Mask mask = std::exchange(solved.mask, Mask());
  result.solve = std::move(solved);
  SPARSEFW_RETURN_IF_ERROR(StoreResult(job, mask, &in, &result));
  return result;
}

// Held from acceptance on: a job that has run for an hour finds room for its mask.
absl::Status SolverRunner::ReserveResult(const JobSpec& spec, SolverInputs* inputs) {
  int64_t bytes = ByteSize(MaskSpec(inputs->rows, inputs->cols));
  if (spec.return_pruned_weight) bytes += ByteSize(PrunedWeightSpec(inputs->weight->info().spec));
  SPARSEFW_ASSIGN_OR_RETURN(inputs->result_room, store_->ReserveRoom(bytes));
  return absl::OkStatus();
}

absl::Status SolverRunner::StoreResult(const Job& job, const Mask& mask, SolverInputs* inputs,
                                       JobResult* result) {
  const absl::Time expire = absl::Now() + job.spec.result_ttl + kResultMargin;
  SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo stored,
                            store_->Put(MaskSpec(mask.rows(), mask.cols()), mask.bytes(), job.owner,
                                        expire, &inputs->result_room));
  result->mask = stored.name;
  if (!job.spec.return_pruned_weight) return absl::OkStatus();
  absl::StatusOr<std::string> pruned = StorePrunedWeight(job, mask, expire, inputs);
  if (pruned.ok()) {
    result->pruned_weight = *std::move(pruned);
    return absl::OkStatus();
  }
  // The mask is the work of the job: it is kept.
  const absl::Status& cause = pruned.status();
  result->incomplete = WithReason(
      absl::Status(
          cause.code(),
          absl::StrFormat("the pruned weight could not be stored (the mask was, as %s): %s",
                          stored.name, std::string(cause.message()))),
      ReasonOf(cause), ReasonMetadataOf(cause));
  return absl::OkStatus();
}

absl::StatusOr<std::string> SolverRunner::StorePrunedWeight(const Job& job, const Mask& mask,
                                                            absl::Time expire,
                                                            SolverInputs* inputs) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::byte> pruned,
                            PrunedWeight(inputs->weight->matrix(), mask));
  SPARSEFW_ASSIGN_OR_RETURN(TensorInfo stored,
                            store_->Put(PrunedWeightSpec(inputs->weight->info().spec), pruned,
                                        job.owner, expire, &inputs->result_room));
  return std::move(stored.name);
}

void SolverRunner::Discard(const Job& job) {
  if (!job.result.has_value()) return;
  for (const std::string& name : {job.result->mask, job.result->pruned_weight}) {
    // Gone already, or read by someone just now: then it expires by itself.
    if (!name.empty()) store_->DeleteTensor(name).IgnoreError();
  }
}

}  // namespace sparsefw::server
