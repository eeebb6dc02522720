#include "server/runner/solver_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/runner/job_needs.h"
#include "server/runner/sweep_results.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/reason.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// The field of the spec that names a tensor, in messages and, for programs, as
// metadata "field" of every error about that tensor.
constexpr std::string_view kWeight = "weight";
constexpr std::string_view kGram = "gram";
constexpr std::string_view kWarmMask = "warm_start.mask";
constexpr std::string_view kWarmSaliency = "warm_start.saliency";

// The most weights of a layer and its Gram matrix whose memory is estimated in 64 bits.
constexpr double kMostWeights = 0x1p52;

absl::Status About(std::string_view field, absl::Status status) {
  return WithMetadata(std::move(status), "field", field);
}

absl::Status CheckShape(std::string_view field, const std::optional<MatrixSpec>& spec, int64_t rows,
                        int64_t cols) {
  if (!spec.has_value() || (spec->rows == rows && spec->cols == cols)) return absl::OkStatus();
  return About(
      field, Invalid("SHAPE_MISMATCH", "%s must be [%d, %d] to fit the weight; got [%d, %d]", field,
                     rows, cols, spec->rows, spec->cols));
}

absl::Status CheckKind(std::string_view field, const TensorInfo& tensor, TensorKind kind) {
  if (tensor.spec.kind == kind) return absl::OkStatus();
  return About(field, Invalid("WRONG_TENSOR_KIND", "%s must be a %s; got %s, a %s", field,
                              NameOf(kind), tensor.name, NameOf(tensor.spec.kind)));
}

// NotFound is for names in requests that ask for the tensor itself.
absl::Status AsInput(std::string_view field, const std::string& name, const absl::Status& status) {
  if (!absl::IsNotFound(status)) return status;
  return WithReason(absl::FailedPreconditionError(absl::StrFormat(
                        "%s must name a tensor that the server has; got %s", field, name)),
                    "TENSOR_NOT_FOUND", {{"field", std::string(field)}, {"tensor", name}});
}

absl::Status CheckFinite(std::string_view field, const TensorHandle& tensor) {
  return tensor.CheckValues([&] { return About(field, ValidateFinite(tensor.matrix(), field)); });
}

// Points that ask for the same counts are one check: a sweep may have hundreds.
absl::Status CheckWarmMask(const JobSpec& spec, const TensorHandle& tensor) {
  SPARSEFW_ASSIGN_OR_RETURN(const Mask mask, tensor.mask());
  std::vector<Groups> checked;
  return CheckPoints(spec, [&](const SweepPoint& point) {
    const Groups groups = GroupsOf(point.pattern, mask.rows(), mask.cols());
    if (std::ranges::find(checked, groups) != checked.end()) return absl::OkStatus();
    checked.push_back(groups);
    return ValidateMaskCounts(mask, point.pattern, kWarmMask);
  });
}

// Only SPARSEFW starts from a given mask or saliency. The others would report the
// loss of a warm start that is not the one that was given.
absl::Status CheckWarmStart(const JobSpec& spec) {
  if (spec.warm_mask.empty() && spec.warm_saliency.empty()) return absl::OkStatus();
  for (const SweepPoint& point : PointsOf(spec)) {
    if (point.options.method == Method::kSparseFw) return absl::OkStatus();
  }
  const bool mask = !spec.warm_mask.empty();
  const std::string_view field = mask ? kWarmMask : kWarmSaliency;
  return About(
      field, Invalid("OPTION_INVALID", "%s must be empty for a method other than SPARSEFW; got %s",
                     field, mask ? spec.warm_mask : spec.warm_saliency));
}

}  // namespace

struct SolverRunner::SolverInputs final : JobRunner::Inputs {
  const Backend& BackendOf(const std::string& device) const {
    for (const Backend* one : backends) {
      if (!device.empty() && one->Describe().name == device) return *one;
    }
    return *backends.front();
  }

  InputSpecs Specs() const {
    const auto spec_of = [](const Handle& handle) -> std::optional<MatrixSpec> {
      if (handle == nullptr) return std::nullopt;
      return MatrixSpecOf(handle->info().spec);
    };
    return {spec_of(weight), spec_of(gram), spec_of(warm_mask_tensor), spec_of(saliency)};
  }

  std::shared_ptr<const TensorHandle> weight;
  std::shared_ptr<const TensorHandle> gram;
  std::shared_ptr<const TensorHandle> saliency;          // may be null
  std::shared_ptr<const TensorHandle> warm_mask_tensor;  // may be null
  std::vector<const Backend*> backends;                  // that may run it
  bool read = false;                                     // they have their bytes
  bool ran = false;
  TensorRoom result_room;
};

SolverRunner::SolverRunner(TensorStore* store, SolverRunnerOptions options)
    : store_(store), options_(options) {}

absl::StatusOr<SolverRunner::Handle> SolverRunner::Acquire(std::string_view field,
                                                           const std::string& name, TensorKind kind,
                                                           Reading reading) {
  if (name.empty()) {
    return About(field, Invalid("SPEC_INVALID", "%s must name a tensor; got none", field));
  }
  absl::StatusOr<Handle> handle =
      reading.now ? store_->Acquire(name, reading.stop) : store_->Hold(name);
  SPARSEFW_RETURN_IF_ERROR(AsInput(field, name, handle.status()));
  SPARSEFW_RETURN_IF_ERROR(CheckKind(field, (*handle)->info(), kind));
  return handle;
}

absl::Status SolverRunner::Describe(std::string_view field, const std::string& name,
                                    TensorKind kind, std::optional<MatrixSpec>* spec) {
  if (name.empty()) return absl::OkStatus();
  const absl::StatusOr<TensorInfo> tensor = store_->GetTensor(name);
  SPARSEFW_RETURN_IF_ERROR(AsInput(field, name, tensor.status()));
  SPARSEFW_RETURN_IF_ERROR(CheckKind(field, *tensor, kind));
  *spec = MatrixSpecOf(tensor->spec);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const Backend*>> SolverRunner::CheckOptions(const JobSpec& spec) const {
  SPARSEFW_RETURN_IF_ERROR(
      CheckPoints(spec, [](const SweepPoint& point) { return ValidateOptions(point.options); }));
  SPARSEFW_RETURN_IF_ERROR(CheckWarmStart(spec));
  return PlaceJob(spec, options_.backends, options_.default_backends);
}

absl::StatusOr<SolverRunner::Needs> SolverRunner::CheckLayer(
    const JobSpec& spec, const InputSpecs& inputs,
    const std::vector<const Backend*>& backends) const {
  const Backend& backend = *backends.front();
  Needs needs;
  if (backend.has_device_memory()) {
    for (const Backend* one : backends) needs.device.devices.push_back(one->Describe().name);
  }
  if (!inputs.weight.has_value()) return needs;
  const int64_t rows = inputs.weight->rows;
  const int64_t cols = inputs.weight->cols;
  SPARSEFW_RETURN_IF_ERROR(CheckPoints(
      spec, [&](const SweepPoint& point) { return ValidatePattern(point.pattern, rows, cols); }));
  if (inputs.activations && inputs.gram.has_value() && inputs.gram->cols != cols) {
    return About("activations",
                 Invalid("SHAPE_MISMATCH", "activations.d_in must be %d to fit the weight; got %d",
                         cols, inputs.gram->cols));
  }
  SPARSEFW_RETURN_IF_ERROR(CheckShape(kGram, inputs.gram, cols, cols));
  SPARSEFW_RETURN_IF_ERROR(CheckShape(kWarmSaliency, inputs.warm_saliency, rows, cols));
  SPARSEFW_RETURN_IF_ERROR(CheckShape(kWarmMask, inputs.warm_mask, rows, cols));
  // What such a layer needs is no 64-bit number.
  if (static_cast<double>(cols) * static_cast<double>(rows + cols) > kMostWeights) {
    return CheckHostMemory(rows, cols, std::numeric_limits<int64_t>::max(),
                           options_.solve_memory_bytes);
  }
  const DType gram = inputs.gram.value_or(MatrixSpec()).dtype;
  needs.working_bytes = WorkingBytes(backend, spec, rows, cols, gram);
  SPARSEFW_RETURN_IF_ERROR(
      CheckHostMemory(rows, cols, needs.working_bytes, options_.solve_memory_bytes));
  needs.results = ResultRoom(spec, *inputs.weight);
  if (backend.has_device_memory()) {
    const bool shares = SharesGram(spec, backend);
    needs.device.bytes = DeviceBytes(backend, spec, *inputs.weight, gram, shares);
    needs.device.gram_bytes = shares ? backend.DeviceGramBytes(cols, gram) : 0;
    if (spec.options.shrinkage > 0 && needs.device.total_bytes() > options_.device_memory_bytes) {
      needs.device.bytes = DeviceBytes(backend, spec, *inputs.weight, gram, /*shares=*/false);
      needs.device.gram_bytes = 0;
    }
  }
  return needs;
}

absl::StatusOr<DeviceNeed> SolverRunner::Check(const JobSpec& spec, const InputSpecs& inputs) {
  SPARSEFW_ASSIGN_OR_RETURN(const auto backends, CheckOptions(spec));
  InputSpecs known = inputs;
  SPARSEFW_RETURN_IF_ERROR(Describe(kWeight, spec.weight, TensorKind::kWeight, &known.weight));
  SPARSEFW_RETURN_IF_ERROR(Describe(kGram, spec.gram, TensorKind::kGram, &known.gram));
  SPARSEFW_RETURN_IF_ERROR(
      Describe(kWarmSaliency, spec.warm_saliency, TensorKind::kSaliency, &known.warm_saliency));
  SPARSEFW_RETURN_IF_ERROR(
      Describe(kWarmMask, spec.warm_mask, TensorKind::kMask, &known.warm_mask));
  SPARSEFW_ASSIGN_OR_RETURN(Needs needs, CheckLayer(spec, known, backends));
  SPARSEFW_RETURN_IF_ERROR(store_->CheckRoom(needs.results));
  return std::move(needs.device);
}

absl::Status SolverRunner::AcquireInputs(const JobSpec& spec, Reading reading,
                                         SolverInputs* inputs) {
  SPARSEFW_ASSIGN_OR_RETURN(inputs->weight,
                            Acquire(kWeight, spec.weight, TensorKind::kWeight, reading));
  SPARSEFW_ASSIGN_OR_RETURN(inputs->gram, Acquire(kGram, spec.gram, TensorKind::kGram, reading));
  if (!spec.warm_saliency.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(inputs->saliency, Acquire(kWarmSaliency, spec.warm_saliency,
                                                        TensorKind::kSaliency, reading));
  }
  if (!spec.warm_mask.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(inputs->warm_mask_tensor,
                              Acquire(kWarmMask, spec.warm_mask, TensorKind::kMask, reading));
  }
  inputs->read = reading.now;
  return absl::OkStatus();
}

absl::Status SolverRunner::CheckValues(const JobSpec& spec, SolverInputs* inputs) {
  if (inputs->warm_mask_tensor != nullptr) {
    SPARSEFW_RETURN_IF_ERROR(About(kWarmMask, CheckWarmMask(spec, *inputs->warm_mask_tensor)));
  }
  SPARSEFW_RETURN_IF_ERROR(CheckFinite(kWeight, *inputs->weight));
  SPARSEFW_RETURN_IF_ERROR(inputs->gram->CheckValues(
      [&inputs] { return About(kGram, ValidateGram(inputs->gram->matrix())); }));
  if (inputs->saliency == nullptr) return absl::OkStatus();
  return CheckFinite(kWarmSaliency, *inputs->saliency);
}

// Cheap checks come before those that read every value.
absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> SolverRunner::Prepare(const JobSpec& spec,
                                                                         const Owner& owner,
                                                                         Values values) {
  auto inputs = std::make_shared<SolverInputs>();
  SPARSEFW_ASSIGN_OR_RETURN(inputs->backends, CheckOptions(spec));
  // The start of a server would take as long as all inputs are large.
  const Reading reading = {.now = values == Values::kUnchecked};
  SPARSEFW_RETURN_IF_ERROR(AcquireInputs(spec, reading, inputs.get()));
  SPARSEFW_ASSIGN_OR_RETURN(Needs needs, CheckLayer(spec, inputs->Specs(), inputs->backends));
  inputs->rows = inputs->weight->info().spec.rows;
  inputs->cols = inputs->weight->info().spec.cols;
  inputs->need.working_bytes = needs.working_bytes;
  inputs->cost = JobCost(spec, inputs->rows, inputs->cols);
  inputs->need.device = std::move(needs.device);
  if (inputs->need.device.gram_bytes > 0) {
    inputs->need.device.gram = inputs->gram->info().name;  // never reused
  }
  // Reserved from acceptance on, so that no job that was accepted lacks room for its results.
  if (values == Values::kCheckedBefore) {
    inputs->result_room = store_->KeepRoom(needs.results, owner);
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(inputs->result_room, store_->ReserveRoom(needs.results, owner));
  }
  if (values == Values::kUnchecked) {
    SPARSEFW_RETURN_IF_ERROR(CheckValues(spec, inputs.get()));
  }
  return inputs;
}

absl::StatusOr<JobResult> SolverRunner::Run(
    const Job& job, Inputs& inputs, const Placement& placement, const StopSignal& stop,
    const std::function<void(const ProgressReport&)>& report) {
  auto& in = static_cast<SolverInputs&>(inputs);
  // A sweep whose device was lost may have used some of it for its first masks, which are gone.
  if (std::exchange(in.ran, true)) {
    in.result_room = TensorRoom();
    in.result_room = store_->KeepRoom(ResultRoom(job.spec, *in.Specs().weight), job.owner);
  }
  if (!in.read) {
    SPARSEFW_RETURN_IF_ERROR(AcquireInputs(job.spec, {.now = true, .stop = &stop}, &in));
  }
  std::optional<Mask> warm_mask;  // not kept while the job waits
  if (in.warm_mask_tensor != nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(warm_mask, in.warm_mask_tensor->mask());
  }
  const Backend& backend = in.BackendOf(placement.device);
  Problem problem;
  problem.weights = in.weight->matrix();
  problem.gram = in.gram->matrix();
  problem.pattern = job.spec.pattern;
  problem.values_checked = true;  // by Prepare, or by that of an earlier process
  if (in.saliency != nullptr) problem.saliency = in.saliency->matrix();
  if (warm_mask.has_value()) problem.warm_mask = &*warm_mask;

  std::shared_ptr<const DeviceGram> device_gram;  // outlives the solve's engines
  if (placement.gram != nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(
        device_gram,
        placement.gram->Get([&] { return backend.UploadGram(problem.gram, &stop); }, stop));
    problem.device_gram = device_gram.get();
  }

  SPARSEFW_ASSIGN_OR_RETURN(JobResult result,
                            SolvePoints(job, placement.deadline, problem, backend, *in.weight,
                                        &in.result_room, stop, report));
  if (job.spec.sweep.empty()) result.sweep.clear();
  result.device = backend.Describe().name;
  return result;
}

// Goes on from the job's checkpoint where there is one that this server can use.
absl::StatusOr<JobResult> SolverRunner::SolvePoints(
    const Job& job, absl::Time deadline, const Problem& problem, const Backend& backend,
    const TensorHandle& weight, TensorRoom* room, const StopSignal& stop,
    const std::function<void(const ProgressReport&)>& report) {
  std::vector<SweepPoint> points = PointsOf(job.spec);
  for (SweepPoint& point : points) {
    point.options.deadline = deadline;
    point.options.threads = options_.threads_per_job;
  }
  std::unique_ptr<CheckpointSink> sink;
  MappedBytes resume;
  // The results of a sweep's finished points are not kept: it begins anew.
  if (options_.checkpoints != nullptr && job.spec.sweep.empty()) {
    sink = options_.checkpoints->SinkOf(job.name);
    if (auto found = options_.checkpoints->Find(job.name); found.ok()) resume = *std::move(found);
  }
  while (true) {
    SweepResults results(store_, job, weight, room, points, report);
    const SweepStart start = {0, {sink.get(), resume.bytes()}};
    const absl::Status solved = SolveSweep(problem, points, backend, results, &stop, start);
    absl::StatusOr<JobResult> result =
        solved.ok() ? results.Finish() : absl::StatusOr<JobResult>(solved);
    if (result.ok()) return result;
    for (const std::string& mask : results.StoredMasks()) store_->DeleteTensor(mask).IgnoreError();
    if (resume.bytes().empty() || !HasReason(solved, "CHECKPOINT_INVALID")) return result;
    options_.checkpoints->Refused(job.name, solved);
    resume = MappedBytes();
  }
}

RunMark SolverRunner::Saved(const std::string& job) const {
  if (options_.checkpoints == nullptr) return {};
  const absl::StatusOr<MappedBytes> found = options_.checkpoints->Find(job);
  if (!found.ok()) return {};
  const std::optional<CheckpointInfo> info = PeekCheckpoint(found->bytes());
  return info.has_value() ? RunMark{info->stage, info->iteration} : RunMark();
}

void SolverRunner::ReleaseInputs(const JobSpec& spec) {
  for (const std::string& name : {spec.weight, spec.gram, spec.warm_saliency, spec.warm_mask}) {
    store_->ReleaseTransient(name);
  }
}

// Covers results of a run that was killed before its end was stored.
void SolverRunner::Discard(const Job& job) { store_->DeleteResultsOf(job.name); }

}  // namespace sparsefw::server
