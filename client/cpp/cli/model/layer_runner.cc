#include "client/cpp/cli/model/layer_runner.h"

#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/output/result.h"
#include "client/cpp/cli/session.h"
#include "sparsefw/client/error.h"
#include "sparsefw/client/job_state.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/mask.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::cli {
namespace {

// A label of every job.
constexpr char kLayerLabel[] = "sparsefw-cli.layer";
constexpr size_t kMaxLabelBytes = 256;
// Jobs of one layer that an earlier run has left without a result.
constexpr size_t kMostAttempts = 100;

v1::TensorSpec WeightSpecOf(const ModelLayer& layer) {
  return client::WeightSpec(layer.dtype, layer.rows, layer.cols);
}

v1::TensorSpec GramSpecOf(const ModelGram& gram) {
  return client::GramTensorSpec(gram.dtype, gram.d_in, gram.tokens);
}

absl::Status NameInput(const ModelLayers& model, const ModelLayer& layer,
                       const absl::Status& status) {
  const ReasonMetadata metadata = ReasonMetadataOf(status);
  const auto field = metadata.find("field");
  if (field == metadata.end() || field->second != "gram") return About(layer.name, status);
  return About(layer.name, About(model.grams[layer.gram].label, status));
}

}  // namespace

bool MakesWeights(const v1::JobSpec& spec) {
  return spec.method() == v1::SPARSEGPT || spec.method() == v1::ALPS || spec.reconstruct() ||
         spec.refine().joint() || spec.preset() == v1::BEST;
}

absl::Status CheckJobs(client::Client& client, const ModelLayers& model, const v1::JobSpec& spec) {
  for (const ModelLayer& layer : model.layers) {
    v1::CheckJobOptionsRequest request;
    *request.mutable_spec() = spec;
    *request.mutable_weight() = WeightSpecOf(layer);
    *request.mutable_gram() = GramSpecOf(model.grams[layer.gram]);
    const absl::Status status = client.CheckJobOptions(request);
    // An older server does not know the call: CreateJob will tell.
    if (absl::IsUnimplemented(status) && ReasonOf(status).empty()) return absl::OkStatus();
    const bool of_all = ReasonOf(status) == "OPTION_INVALID";
    SPARSEFW_RETURN_IF_ERROR(MarkRefusedOptions(of_all ? status : NameInput(model, layer, status)));
  }
  return absl::OkStatus();
}

LayerRunner::LayerRunner(client::Client& client, const ModelLayers& model, const v1::JobSpec& spec,
                         const RunState& state, const OnDone& on_done)
    : client_(client), model_(model), spec_(spec), state_(state), on_done_(on_done) {
  for (size_t i = 0; i < model.grams.size(); ++i) grams_.push_back(std::make_unique<Gram>());
  for (const ModelLayer& layer : model.layers) {
    MutexLock lock(grams_[layer.gram]->mutex);
    ++grams_[layer.gram]->left;
  }
}

std::string LayerRunner::RequestId(const std::string& what, size_t number) const {
  return absl::StrFormat("model %s %s %d", state_.run_id(), what, number);
}

absl::Status LayerRunner::Run(int in_flight, std::stop_source& stop) {
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < in_flight; ++i) threads.emplace_back([this, &stop] { Work(stop); });
  }
  MutexLock lock(mutex_);
  if (failed_.ok() && next_ < model_.layers.size()) return absl::CancelledError("stopped");
  return failed_;
}

void LayerRunner::Work(std::stop_source& stop) {
  for (;;) {
    size_t index = 0;
    {
      MutexLock lock(mutex_);
      if (stop.stop_requested() || next_ == model_.layers.size()) return;
      index = next_++;
    }
    const absl::Status status = RunLayer(index, client::CallOptions{stop.get_token()});
    LetGo(model_.layers[index].gram);
    if (status.ok()) continue;
    MutexLock lock(mutex_);
    // Those that this one stops end with CANCELLED.
    if (failed_.ok() || absl::IsCancelled(failed_)) failed_ = status;
    stop.request_stop();
  }
}

absl::Status LayerRunner::RunLayer(size_t index, const client::CallOptions& call) {
  const ModelLayer& layer = model_.layers[index];
  const absl::Time begin = absl::Now();
  SPARSEFW_ASSIGN_OR_RETURN(std::optional<LayerRecord> done, state_.Find(index));
  const Json inputs = {{"weight_crc32c", Crc32c(layer.bytes())},
                       {"gram_crc32c", Crc32c(model_.grams[layer.gram].bytes)}};
  const bool before = done.has_value();
  if (before && done->facts.value("inputs", Json()) != inputs) {
    return FileError(absl::StrFormat(
        "%s: its weight or its Gram matrix is another one than when it was pruned; use another "
        "--state-dir",
        layer.name));
  }
  std::vector<std::string> made;
  if (!before) {
    SPARSEFW_ASSIGN_OR_RETURN(done, Prune(index, call, made));
    done->facts["inputs"] = inputs;
    SPARSEFW_RETURN_IF_ERROR(state_.Keep(index, *done));
  }
  // The record is on the disk: nobody comes back for these.
  client::CallOptions once;
  once.retry = false;
  for (const std::string& name : made) {
    const bool is_job = name.starts_with("jobs/");
    const absl::Status removed =
        is_job ? client_.DeleteJob(name, once) : client_.DeleteTensor(name, once);
    removed.IgnoreError();  // else they expire
  }
  MutexLock lock(report_);
  on_done_(index, *done, before, absl::Now() - begin);
  return absl::OkStatus();
}

absl::StatusOr<LayerRecord> LayerRunner::Prune(size_t index, const client::CallOptions& call,
                                               std::vector<std::string>& made) {
  const ModelLayer& layer = model_.layers[index];
  v1::JobSpec spec = spec_;
  spec.set_return_pruned_weight(MakesWeights(spec_));
  if (layer.name.size() <= kMaxLabelBytes) (*spec.mutable_labels())[kLayerLabel] = layer.name;
  auto gram = GramName(layer.gram, call);
  if (!gram.ok()) {
    return About(layer.name, About(model_.grams[layer.gram].label, gram.status()));
  }
  spec.set_gram(*gram);
  const auto weight = Upload([&] {
    return client_.UploadTensor(WeightSpecOf(layer), layer.bytes(), {}, call,
                                RequestId("weight", index));
  });
  if (!weight.ok()) return About(layer.name, weight.status());
  spec.set_weight(*weight);
  auto job = Create(index, spec, call);
  if (!job.ok()) return NameInput(model_, layer, job.status());
  {
    MutexLock lock(mutex_);
    ++at_work_;
  }
  const std::string name = job->name();
  job = client_.WaitJob(name, {}, call);
  {
    MutexLock lock(mutex_);
    --at_work_;
  }
  if (!job.ok()) return About(layer.name, About(name, job.status()));
  if (absl::Status outcome = JobOutcome(*job); !outcome.ok()) return About(layer.name, outcome);
  auto record = Fetch(layer, *job, call);
  if (!record.ok()) return About(layer.name, record.status());
  made = {name, spec.weight()};
  return record;
}

// A job that an earlier run has left without a result is left aside, and so is a request id that
// was used with inputs that are gone.
absl::StatusOr<v1::Job> LayerRunner::Create(size_t index, const v1::JobSpec& spec,
                                            const client::CallOptions& call) {
  for (size_t attempt = 0;; ++attempt) {
    const std::string id = RequestId("layer", index) + absl::StrFormat(".%d", attempt);
    auto job = client_.CreateJob(spec, id, call);
    const bool used = ReasonOf(job.status()) == "REQUEST_ID_REUSED";
    const bool ended = job.ok() && client::IsTerminal(job->state()) && !JobOutcome(*job).ok();
    if ((!used && !ended) || attempt == kMostAttempts) return job;
  }
}

absl::StatusOr<LayerRecord> LayerRunner::Fetch(const ModelLayer& layer, const v1::Job& job,
                                               const client::CallOptions& call) {
  const v1::JobResult& result = job.result();
  LayerRecord record;
  record.facts["name"] = layer.name;
  record.facts["shape"] = {layer.rows, layer.cols};
  record.facts["tokens"] = model_.grams[layer.gram].tokens;
  record.facts.update(ResultNumbersJson(result));
  record.facts["device"] = result.device();
  SPARSEFW_ASSIGN_OR_RETURN(
      client::TensorData mask,
      client_.ReadTensor(result.mask(), {}, call, client::MaskSpec(layer.rows, layer.cols)));
  SPARSEFW_ASSIGN_OR_RETURN(const Mask kept, Mask::FromBytes(layer.rows, layer.cols, mask.bytes));
  if (kept.CountKept() != result.kept_count()) {
    return absl::InternalError(absl::StrFormat("%s: the mask keeps %d weights, not the %d reported",
                                               job.name(), kept.CountKept(), result.kept_count()));
  }
  record.data = std::move(mask.bytes);
  if (result.pruned_weight().empty()) return record;
  v1::TensorSpec expected = WeightSpecOf(layer);
  expected.set_kind(v1::PRUNED_WEIGHT);
  SPARSEFW_ASSIGN_OR_RETURN(client::TensorData weight,
                            client_.ReadTensor(result.pruned_weight(), {}, call, expected));
  record.has_weight = true;
  record.data = std::move(weight.bytes);
  return record;
}

// The server may have no room until one of the other layers is done.
absl::StatusOr<std::string> LayerRunner::Upload(const UploadCall& upload) {
  for (;;) {
    const auto tensor = upload();
    if (tensor.ok()) return tensor->name();
    const bool full = absl::IsResourceExhausted(tensor.status()) &&
                      client::RetryDelayOf(tensor.status()).has_value();
    MutexLock lock(mutex_);
    if (!full || at_work_ == 0) return tensor.status();
  }
}

absl::StatusOr<std::string> LayerRunner::GramName(size_t index, const client::CallOptions& call) {
  Gram& gram = *grams_[index];
  const ModelGram& source = model_.grams[index];
  MutexLock lock(gram.mutex);
  if (gram.name.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(gram.name, Upload([&] {
                                return client_.UploadTensor(GramSpecOf(source), source.bytes, {},
                                                            call, RequestId("gram", index));
                              }));
  }
  return gram.name;
}

void LayerRunner::LetGo(size_t index) {
  Gram& gram = *grams_[index];
  MutexLock lock(gram.mutex);
  if (--gram.left > 0 || gram.name.empty()) return;
  {
    MutexLock running(mutex_);
    if (!failed_.ok()) return;  // the next run goes on with it
  }
  client::CallOptions once;
  once.retry = false;
  client_.DeleteTensor(gram.name, once).IgnoreError();  // else it expires
}

}  // namespace sparsefw::cli
