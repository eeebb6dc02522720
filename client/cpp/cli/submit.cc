// `submit`: uploads the tensors, creates the job, follows it and downloads its mask.
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/files/calibration.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/output/json_text.h"
#include "client/cpp/cli/output/result.h"
#include "client/cpp/cli/output/result_text.h"
#include "client/cpp/cli/session.h"
#include "client/cpp/cli/submit_inputs.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/error.h"
#include "sparsefw/client/printable.h"
#include "sparsefw/mutex.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

// The server's limit for the value of a label.
constexpr size_t kMaxLabelBytes = 256;

v1::TensorSpec WeightSpecOf(const Input& weight) {
  return client::WeightSpec(weight.dtype, weight.rows, weight.cols);
}

v1::TensorSpec GramSpecOf(const Input& gram) {
  return client::GramTensorSpec(gram.dtype, gram.cols, TokenCount(gram));
}

v1::GramSpec ActivationSpecOf(const Input& activations) {
  return client::ActivationSpec(activations.dtype, activations.cols);
}

// An interrupt stops the uploads; once there is a job, it cancels the job.
class Cancellation {
 public:
  client::CallOptions call() const { return client::CallOptions{stop_.get_token()}; }

  // From here on an interrupt cancels the job instead of stopping the client.
  void SetJob(client::Client* client, const std::string& job) {
    bool late = false;
    {
      MutexLock lock(mutex_);
      client_ = client;
      job_ = job;
      late = interrupted_;
    }
    if (late) client->CancelJob(job).IgnoreError();
  }

  void OnInterrupt(ProgressDisplay& display) {
    client::Client* client = nullptr;
    std::string job;
    {
      MutexLock lock(mutex_);
      interrupted_ = true;
      client = client_;
      job = job_;
    }
    if (client == nullptr) {
      stop_.request_stop();
      return;
    }
    display.Note(
        absl::StrFormat("sparsefw-cli: cancelling %s; interrupt again to quit at once", job));
    const auto cancelled = client->CancelJob(job);
    if (!cancelled.ok()) {
      display.Note(absl::StrFormat("sparsefw-cli: %s could not be cancelled: %s", job,
                                   std::string(cancelled.status().message())));
    }
  }

 private:
  std::stop_source stop_;
  Mutex mutex_;
  client::Client* client_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string job_ ABSL_GUARDED_BY(mutex_);
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status NotSubmitted() {
  return WithExitCode(absl::CancelledError("cancelled before the job was submitted"),
                      ExitCode::kNoMask);
}

class Submission {
 public:
  Submission(const SubmitOptions& options, const SubmitInputs& inputs, const Console& console,
             ProgressDisplay& display, Cancellation& cancellation, client::Client& client)
      : options_(options),
        inputs_(inputs),
        console_(console),
        display_(display),
        cancellation_(cancellation),
        client_(client),
        start_(absl::Now()) {}

  absl::Status Run() {
    absl::StatusOr<v1::Job> job = Create();
    if (!job.ok()) {
      if (!options_.output.keep_tensors) DeleteTensors(client_, uploaded_, display_);
      // A server that shuts down may say CANCELLED, too.
      const bool stopped = cancellation_.call().stop.stop_requested();
      return stopped && absl::IsCancelled(job.status()) ? NotSubmitted() : job.status();
    }
    if (options_.detach) {
      console_.out << (options_.common.json ? JsonText(nlohmann::ordered_json{{"job", job->name()}})
                                            : client::Printable(job->name()) + "\n");
      return absl::OkStatus();
    }
    cancellation_.SetJob(&client_, job->name());
    const std::string name = job->name();
    const Ticker ticker(display_);
    job = client_.WaitJob(name, [this](const v1::JobEvent& event) { display_.OnJob(event); });
    if (!job.ok()) return About(name, job.status());
    return Finish(*job);
  }

 private:
  using UploadCall = std::function<absl::StatusOr<v1::Tensor>(const client::TransferCallback&)>;

  absl::StatusOr<std::string> Upload(const std::string& label, const UploadCall& upload) {
    display_.StartTransfer("uploading", label);
    const auto tensor =
        upload([this](const client::TransferProgress& progress) { display_.OnTransfer(progress); });
    if (!tensor.ok()) return About(label, tensor.status());
    display_.EndTransfer();
    uploaded_.push_back(tensor->name());
    if (options_.output.keep_tensors) {
      display_.Note(absl::StrFormat("kept %s  %s", tensor->name(), label));
    }
    return tensor->name();
  }

  absl::StatusOr<std::string> UploadAs(const Input& input, const v1::TensorSpec& spec,
                                       std::span<const std::byte> bytes) {
    if (!input.name.empty()) return input.name;
    return Upload(input.label, [&](const client::TransferCallback& progress) {
      return client_.UploadTensor(spec, bytes, progress, cancellation_.call());
    });
  }

  absl::StatusOr<std::string> UploadGram() {
    if (inputs_.gram) {
      const Input& gram = *inputs_.gram;
      return UploadAs(gram, GramSpecOf(gram), gram.bytes);
    }
    const std::vector<Input>& batches = inputs_.activations;
    return Upload(LabelOf(batches), [&](const client::TransferCallback& progress) {
      return client_.UploadGramFromBatches(ActivationSpecOf(batches[0]), BytesOf(batches), progress,
                                           cancellation_.call());
    });
  }

  absl::Status UploadStart(v1::WarmStart& start) {
    if (inputs_.warm_mask) {
      const Input& mask = *inputs_.warm_mask;
      SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::byte> bits, PackMask(mask));
      SPARSEFW_ASSIGN_OR_RETURN(*start.mutable_mask(),
                                UploadAs(mask, client::MaskSpec(mask.rows, mask.cols), bits));
    }
    if (inputs_.saliency) {
      const Input& scores = *inputs_.saliency;
      SPARSEFW_ASSIGN_OR_RETURN(
          *start.mutable_saliency(),
          UploadAs(scores, client::SaliencySpec(scores.rows, scores.cols), scores.bytes));
    }
    return absl::OkStatus();
  }

  // Checked before hours of upload. A server without this call answers UNIMPLEMENTED without a
  // reason; it refuses the job after the upload.
  absl::Status CheckOptions() {
    v1::CheckJobOptionsRequest request;
    v1::JobSpec& spec = *request.mutable_spec() = options_.spec;
    spec.set_weight(inputs_.weight.name);
    if (inputs_.weight.name.empty()) *request.mutable_weight() = WeightSpecOf(inputs_.weight);
    if (!inputs_.activations.empty()) {
      *request.mutable_activations() = ActivationSpecOf(inputs_.activations[0]);
    } else if (inputs_.gram->name.empty()) {
      *request.mutable_gram() = GramSpecOf(*inputs_.gram);
    } else {
      spec.set_gram(inputs_.gram->name);
    }
    if (inputs_.warm_mask) {
      *request.mutable_warm_start() =
          client::MaskSpec(inputs_.warm_mask->rows, inputs_.warm_mask->cols);
    } else if (inputs_.saliency) {
      *request.mutable_warm_start() =
          client::SaliencySpec(inputs_.saliency->rows, inputs_.saliency->cols);
    }
    const absl::Status status = client_.CheckJobOptions(request, cancellation_.call());
    const bool old_server = absl::IsUnimplemented(status) && ReasonOf(status).empty();
    return old_server ? absl::OkStatus() : MarkRefusedOptions(NameTheFile(status));
  }

  absl::StatusOr<v1::Job> Create() {
    SPARSEFW_RETURN_IF_ERROR(CheckOptions());
    Warn();
    v1::JobSpec spec = options_.spec;
    const Input& weight = inputs_.weight;
    SPARSEFW_ASSIGN_OR_RETURN(*spec.mutable_weight(),
                              UploadAs(weight, WeightSpecOf(weight), weight.bytes));
    SPARSEFW_ASSIGN_OR_RETURN(*spec.mutable_gram(), UploadGram());
    if (inputs_.warm_mask || inputs_.saliency) {
      SPARSEFW_RETURN_IF_ERROR(UploadStart(*spec.mutable_warm_start()));
    }
    upload_time_ = absl::Now() - start_;
    AddLabels(*spec.mutable_labels());
    if (cancellation_.call().stop.stop_requested()) return absl::CancelledError("stopped");
    // Not stoppable: a job whose name is unknown could not be cancelled.
    const auto job = client_.CreateJob(spec);
    if (!job.ok()) return NameTheFile(job.status());
    if (spec.preset() == 0 && job->spec().preset() != 0 && !options_.common.quiet) {
      display_.Note(absl::StrFormat(
          "preset %s, for no method and no option of one was given; --preset paper has the paper's "
          "settings",
          PresetName(job->spec().preset())));
    }
    return job;
  }

  void Warn() {
    std::vector<std::string> warnings;
    if (!inputs_.activations.empty()) warnings = WarningsOf(inputs_.activations);
    if (inputs_.gram && inputs_.gram->name.empty()) warnings = WarningsOfGram(*inputs_.gram);
    for (const std::string& warning : warnings) display_.Note("sparsefw-cli: " + warning);
  }

  // Labels for later commands, which know nothing else of the input files.
  void AddLabels(google::protobuf::Map<std::string, std::string>& labels) const {
    const Input& weight = inputs_.weight;
    if (!weight.tensor.empty() && weight.tensor.size() <= kMaxLabelBytes) {
      labels[kWeightNameLabel] = weight.tensor;
    }
    if (options_.output.keep_tensors) return;
    if (weight.name.empty() && (!inputs_.gram || inputs_.gram->name.empty())) {
      labels[kInputsLabel] = "delete";
    } else {
      labels[kUploadedLabel] = absl::StrJoin(uploaded_, " ");
    }
  }

  // The server speaks of "weight" and "gram"; here these are files.
  absl::Status NameTheFile(const absl::Status& status) const {
    const ReasonMetadata metadata = ReasonMetadataOf(status);
    const auto field = metadata.find("field");
    if (!absl::IsInvalidArgument(status) || field == metadata.end()) return status;
    if (field->second == "weight") return About(inputs_.weight.label, status);
    const std::pair<std::string_view, const std::optional<Input>*> fields[] = {
        {"warm_start.mask", &inputs_.warm_mask},
        {"warm_start.saliency", &inputs_.saliency},
        {"gram", &inputs_.gram}};
    for (const auto& [name, input] : fields) {
      if (*input && field->second == name) return About((*input)->label, status);
    }
    const bool of_inputs = field->second == "gram" || field->second == "activations";
    if (!of_inputs || inputs_.activations.empty()) return status;
    return About(LabelOf(inputs_.activations), status);
  }

  // That a matrix is indefinite may show only in the solve, whose errors name no field.
  absl::Status NameTheGram(const v1::Job& job, const absl::Status& outcome) const {
    if (!HasReason(client::StatusFromProto(job.error()), "GRAM_NOT_POSITIVE_DEFINITE")) {
      return outcome;
    }
    return About(inputs_.gram ? inputs_.gram->label : LabelOf(inputs_.activations), outcome);
  }

  absl::Status Write(const v1::Job& job, const OutputOptions& output) {
    if (const Input& weight = inputs_.weight; weight.name.empty()) {
      SPARSEFW_RETURN_IF_ERROR(CheckJobShape(job, weight.rows, weight.cols));
    }
    return WriteOutputs(client_, job, output, display_);
  }

  absl::Status Finish(const v1::Job& job) {
    const absl::Status outcome = JobOutcome(job);
    const OutputOptions output = OutputsOf(job, options_.output);
    const absl::Status written = HasMask(job) ? Write(job, output) : absl::OkStatus();
    // Nobody needs them any more: a fetch after a file that could not be written neither.
    if (!options_.output.keep_tensors) DeleteTensors(client_, uploaded_, display_);
    // A job that failed ends the program with its own error.
    if (outcome.ok()) SPARSEFW_RETURN_IF_ERROR(written);
    if (!written.ok()) display_.Note(std::string(written.message()));
    if (outcome.ok()) NoteWeightsWithoutFile(job, options_.output, display_);
    const ClientTimes times{upload_time_, absl::Now() - start_};
    if (options_.common.json) {
      console_.out << JsonText(ResultJson(job, times));
    } else if (HasMask(job)) {
      console_.out << ResultText(job, times, output);
    }
    return NameTheGram(job, outcome);
  }

  const SubmitOptions& options_;
  const SubmitInputs& inputs_;
  const Console& console_;
  ProgressDisplay& display_;
  Cancellation& cancellation_;
  client::Client& client_;
  const absl::Time start_;
  absl::Duration upload_time_;
  std::vector<std::string> uploaded_;
};

}  // namespace

absl::Status Run(const SubmitOptions& options, const Console& console) {
  IgnoreClosedPipes();
  SPARSEFW_ASSIGN_OR_RETURN(const SubmitInputs inputs, LoadSubmitInputs(options));
  SPARSEFW_RETURN_IF_ERROR(CheckOutputs(options.output, inputs));
  ProgressDisplay display(console, absl::Now, options.common.quiet);
  // An interrupt may be cancelling through the client until `interrupt` is gone,
  // so the client must outlive it; it is made later, when signals are handled.
  std::unique_ptr<client::Client> client;
  Cancellation cancellation;
  const Interrupt interrupt([&](int) { cancellation.OnInterrupt(display); });
  absl::StatusOr<std::unique_ptr<client::Client>> connected =
      Connect(options.common, display, cancellation.call().stop);
  if (absl::IsCancelled(connected.status())) return NotSubmitted();
  SPARSEFW_RETURN_IF_ERROR(connected.status());
  client = *std::move(connected);
  return Submission(options, inputs, console, display, cancellation, *client).Run();
}

}  // namespace sparsefw::cli
