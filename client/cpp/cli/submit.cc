// `submit`: tensors up, the job, its mask down.
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/result.h"
#include "client/cpp/cli/session.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/error.h"
#include "sparsefw/mutex.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::cli {
namespace {

constexpr std::array kFloats = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array kGrams = {DType::kF32, DType::kF64};
constexpr std::array kScores = {DType::kF32};
constexpr std::array kMasks = {DType::kBool};
// The server's limit for the value of a label.
constexpr size_t kMaxLabelBytes = 256;

struct SubmitInputs {
  Input weight;
  std::optional<Input> gram;
  std::optional<Input> activations;
  std::optional<Input> warm_mask;
  std::optional<Input> saliency;
};

absl::StatusOr<std::optional<Input>> LoadOptional(const std::string& text,
                                                  std::span<const DType> allowed) {
  if (text.empty()) return std::nullopt;
  SPARSEFW_ASSIGN_OR_RETURN(Input input, LoadInput(text, allowed));
  return std::optional<Input>(std::move(input));
}

absl::Status CheckShapes(const SubmitInputs& inputs) {
  const Input& weight = inputs.weight;
  if (!weight.name.empty()) return absl::OkStatus();
  if (inputs.gram && inputs.gram->name.empty()) {
    SPARSEFW_RETURN_IF_ERROR(CheckShape(*inputs.gram, weight.cols, weight.cols, weight));
  }
  if (inputs.activations) {
    SPARSEFW_RETURN_IF_ERROR(
        CheckShape(*inputs.activations, inputs.activations->rows, weight.cols, weight));
  }
  for (const auto* start : {&inputs.warm_mask, &inputs.saliency}) {
    if (*start) SPARSEFW_RETURN_IF_ERROR(CheckShape(**start, weight.rows, weight.cols, weight));
  }
  return absl::OkStatus();
}

// What the server would find out after the upload.
absl::Status CheckPattern(const v1::Pattern& pattern, const Input& weight) {
  const int64_t group = pattern.nm().group();
  if (!pattern.has_nm() || !weight.name.empty() || weight.cols % group == 0)
    return absl::OkStatus();
  return UsageError(
      absl::StrFormat("--pattern %d:%d: the %d inputs (columns) of %s must be divisible by %d",
                      pattern.nm().keep(), group, weight.cols, weight.label, group));
}

absl::StatusOr<SubmitInputs> LoadInputs(const SubmitOptions& options) {
  SubmitInputs inputs;
  SPARSEFW_ASSIGN_OR_RETURN(inputs.weight, LoadOrName(options.weights, kFloats));
  if (!options.gram.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(inputs.gram, LoadOrName(options.gram, kGrams));
  }
  SPARSEFW_ASSIGN_OR_RETURN(inputs.activations, LoadOptional(options.activations, kFloats));
  SPARSEFW_ASSIGN_OR_RETURN(inputs.warm_mask, LoadOptional(options.warm_mask, kMasks));
  SPARSEFW_ASSIGN_OR_RETURN(inputs.saliency, LoadOptional(options.saliency, kScores));
  SPARSEFW_RETURN_IF_ERROR(CheckShapes(inputs));
  SPARSEFW_RETURN_IF_ERROR(CheckPattern(options.spec.pattern(), inputs.weight));
  return inputs;
}

absl::Status CheckOutputs(const OutputOptions& output, const SubmitInputs& inputs) {
  for (const auto& [flag, path] : {std::pair<const char*, const std::string&>("--out", output.out),
                                   {"--out-weights", output.out_weights}}) {
    if (path.empty()) continue;
    for (const Input* input : {&inputs.weight, inputs.gram ? &*inputs.gram : nullptr,
                               inputs.activations ? &*inputs.activations : nullptr}) {
      if (input != nullptr && input->name.empty() && SameFile(path, input->path)) {
        return UsageError(absl::StrFormat("%s: %s is an input and would be lost", flag, path));
      }
    }
    SPARSEFW_RETURN_IF_ERROR(CheckWritable(flag, path));
  }
  return absl::OkStatus();
}

// How many tokens a Gram that `gram` wrote was summed from.
int64_t TokenCount(const Input& gram) {
  const auto found = gram.metadata.find("token_count");
  int64_t tokens = 0;
  if (found == gram.metadata.end() || !absl::SimpleAtoi(found->second, &tokens)) return 0;
  return std::max<int64_t>(tokens, 0);
}

// What an interrupt does depends on how far the submission is.
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

  void OnInterrupt(const Console& console) {
    std::ostream& err = console.err;
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
    // A terminal has just echoed ^C into the live line.
    err << (console.err_is_terminal ? "\n" : "") << "sparsefw-cli: cancelling " << job
        << "; interrupt again to quit at once\n"
        << std::flush;
    const auto cancelled = client->CancelJob(job);
    if (!cancelled.ok()) {
      err << "sparsefw-cli: " << job << " could not be cancelled: " << cancelled.status().message()
          << "\n"
          << std::flush;
    }
  }

 private:
  std::stop_source stop_;
  Mutex mutex_;
  client::Client* client_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string job_ ABSL_GUARDED_BY(mutex_);
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

class Submission {
 public:
  Submission(const SubmitOptions& options, const SubmitInputs& inputs, const Console& console,
             Cancellation& cancellation, client::Client& client)
      : options_(options),
        inputs_(inputs),
        console_(console),
        cancellation_(cancellation),
        client_(client),
        display_(console, absl::Now),
        start_(absl::Now()) {}

  absl::Status Run() {
    absl::StatusOr<v1::Job> job = Create();
    if (!job.ok()) {
      DeleteTensors(client_, uploaded_, display_);
      if (!absl::IsCancelled(job.status())) return job.status();
      return WithExitCode(absl::CancelledError("cancelled before the job was submitted"),
                          ExitCode::kNoMask);
    }
    if (options_.detach) {
      console_.out << (options_.common.json ? nlohmann::ordered_json{{"job", job->name()}}.dump()
                                            : job->name())
                   << "\n";
      return absl::OkStatus();
    }
    cancellation_.SetJob(&client_, job->name());
    const std::string name = job->name();
    job = client_.WaitJob(name, [this](const v1::JobEvent& event) { display_.OnJob(event); });
    if (!job.ok()) return About(name, job.status());
    return Finish(*job);
  }

 private:
  using UploadCall = std::function<absl::StatusOr<v1::Tensor>(const client::TransferCallback&)>;

  absl::StatusOr<std::string> Upload(const Input& input, const UploadCall& upload) {
    display_.StartTransfer("uploading", input.label);
    const auto tensor =
        upload([this](const client::TransferProgress& progress) { display_.OnTransfer(progress); });
    if (!tensor.ok()) return About(input.label, tensor.status());
    display_.EndTransfer();
    uploaded_.push_back(tensor->name());
    if (options_.output.keep_tensors) {
      display_.Note(absl::StrFormat("kept %s  %s", tensor->name(), input.label));
    }
    return tensor->name();
  }

  absl::StatusOr<std::string> UploadAs(const Input& input, const v1::TensorSpec& spec,
                                       std::span<const std::byte> bytes) {
    if (!input.name.empty()) return input.name;
    return Upload(input, [&](const client::TransferCallback& progress) {
      return client_.UploadTensor(spec, bytes, progress, cancellation_.call());
    });
  }

  absl::StatusOr<std::string> UploadGram() {
    if (inputs_.gram) {
      const Input& gram = *inputs_.gram;
      return UploadAs(gram, client::GramTensorSpec(gram.dtype, gram.cols, TokenCount(gram)),
                      gram.bytes);
    }
    const Input& activations = *inputs_.activations;
    return Upload(activations, [&](const client::TransferCallback& progress) {
      return client_.UploadGramFromActivations(
          client::ActivationSpec(activations.dtype, activations.cols), activations.bytes, progress,
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

  // Options that the server will refuse are better refused before hours of
  // upload. That the tensors are missing is no news.
  absl::Status CheckOptions() {
    const absl::Status status = client_.ValidateJob(options_.spec, cancellation_.call());
    return ReasonOf(status) == "SPEC_INVALID" ? absl::OkStatus() : status;
  }

  absl::StatusOr<v1::Job> Create() {
    SPARSEFW_RETURN_IF_ERROR(CheckOptions());
    v1::JobSpec spec = options_.spec;
    const Input& weight = inputs_.weight;
    SPARSEFW_ASSIGN_OR_RETURN(
        *spec.mutable_weight(),
        UploadAs(weight, client::WeightSpec(weight.dtype, weight.rows, weight.cols), weight.bytes));
    SPARSEFW_ASSIGN_OR_RETURN(*spec.mutable_gram(), UploadGram());
    if (inputs_.warm_mask || inputs_.saliency) {
      SPARSEFW_RETURN_IF_ERROR(UploadStart(*spec.mutable_warm_start()));
    }
    upload_time_ = absl::Now() - start_;
    AddLabels(*spec.mutable_labels());
    if (cancellation_.call().stop.stop_requested()) return absl::CancelledError("stopped");
    // Not stoppable: a job whose name is unknown could not be cancelled.
    const auto job = client_.CreateJob(spec);
    return job.ok() ? job : NameTheFile(job.status());
  }

  // What a later command cannot know of the job otherwise.
  void AddLabels(google::protobuf::Map<std::string, std::string>& labels) const {
    const Input& weight = inputs_.weight;
    if (weight.name.empty() && weight.tensor.size() <= kMaxLabelBytes) {
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
    if (!absl::IsInvalidArgument(status)) return status;
    const std::string message(status.message());
    const std::pair<std::string_view, const std::optional<Input>*> roles[] = {
        {"warm_start.mask", &inputs_.warm_mask},
        {"warm_start.saliency", &inputs_.saliency},
        {"gram", &inputs_.gram},
        {"gram", &inputs_.activations}};
    if (message.starts_with("weight")) return About(inputs_.weight.label, status);
    for (const auto& [role, input] : roles) {
      if (*input && message.starts_with(role)) return About((*input)->label, status);
    }
    return status;
  }

  absl::Status Finish(const v1::Job& job) {
    const absl::Status outcome = JobOutcome(job);
    if (outcome.ok()) {
      SPARSEFW_RETURN_IF_ERROR(WriteOutputs(client_, job, options_.output, display_));
    }
    if (!options_.output.keep_tensors) DeleteTensors(client_, uploaded_, display_);
    const ClientTimes times{upload_time_, absl::Now() - start_};
    if (options_.common.json) {
      console_.out << ResultJson(job, times).dump() << "\n";
    } else if (outcome.ok()) {
      console_.out << ResultText(job, times);
    }
    return outcome;
  }

  const SubmitOptions& options_;
  const SubmitInputs& inputs_;
  const Console& console_;
  Cancellation& cancellation_;
  client::Client& client_;
  ProgressDisplay display_;
  const absl::Time start_;
  absl::Duration upload_time_;
  std::vector<std::string> uploaded_;
};

}  // namespace

absl::Status Run(const SubmitOptions& options, const Console& console) {
  SPARSEFW_ASSIGN_OR_RETURN(const SubmitInputs inputs, LoadInputs(options));
  SPARSEFW_RETURN_IF_ERROR(CheckOutputs(options.output, inputs));
  // An interrupt may be cancelling through the client until `interrupt` is gone,
  // so the client must outlive it; it is made later, when signals are handled.
  std::unique_ptr<client::Client> client;
  Cancellation cancellation;
  const Interrupt interrupt([&] { cancellation.OnInterrupt(console); });
  SPARSEFW_ASSIGN_OR_RETURN(client, Connect(options.common, console));
  return Submission(options, inputs, console, cancellation, *client).Run();
}

}  // namespace sparsefw::cli
