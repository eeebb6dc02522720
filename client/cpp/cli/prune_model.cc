// `prune-model`: the matrices of a checkpoint that have a Gram matrix, many at a time.
#include <google/protobuf/util/json_util.h>

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/model/checkpoint.h"
#include "client/cpp/cli/model/layer_runner.h"
#include "client/cpp/cli/model/layers.h"
#include "client/cpp/cli/model/model_report.h"
#include "client/cpp/cli/model/output_folder.h"
#include "client/cpp/cli/model/run_state.h"
#include "client/cpp/cli/output/format.h"
#include "client/cpp/cli/output/json_text.h"
#include "client/cpp/cli/session.h"
#include "sparsefw/client/printable.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

absl::StatusOr<Json> SettingsJson(const v1::JobSpec& spec) {
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(spec, &text).ok()) {
    return absl::InternalError("the settings cannot be written as JSON");
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// What decides the outcome, but for the tensors' values: they are checked layer by layer.
absl::StatusOr<Json> FactsOf(const PruneModelOptions& options, const ModelLayers& model) {
  Json facts;
  SPARSEFW_ASSIGN_OR_RETURN(facts["settings"], SettingsJson(options.spec));
  for (const ModelLayer& layer : model.layers) {
    facts["layers"][layer.name] = {{"dtype", std::string(DTypeName(layer.dtype))},
                                   {"shape", {layer.rows, layer.cols}}};
  }
  return facts;
}

absl::Status CheckPattern(const v1::Pattern& pattern, const ModelLayers& model) {
  if (!pattern.has_nm()) return absl::OkStatus();
  const int group = pattern.nm().group();
  for (const ModelLayer& layer : model.layers) {
    if (group > 0 && layer.cols % group == 0) continue;
    return UsageError(
        absl::StrFormat("--pattern %d:%d: the %d inputs (columns) of %s must be divisible by %d",
                        pattern.nm().keep(), group, layer.cols, layer.name, group));
  }
  return absl::OkStatus();
}

class ModelRun {
 public:
  ModelRun(const PruneModelOptions& options, const ModelLayers& model, const Console& console,
           ProgressDisplay& display)
      : options_(options),
        model_(model),
        console_(console),
        display_(display),
        start_(absl::Now()),
        facts_(model.layers.size()) {}

  absl::Status Prune(client::Client& client, const RunState& state, std::stop_source& stop) {
    const LayerRunner::OnDone on_done = [this](size_t layer, const LayerRecord& record, bool before,
                                               absl::Duration time) {
      OnDone(layer, record, before, time);
    };
    LayerRunner runner(client, model_, options_.spec, state, on_done);
    const absl::Status status = runner.Run(options_.in_flight, stop);
    if (!absl::IsCancelled(status) || !interrupted(stop, status)) return status;
    return WithExitCode(
        absl::CancelledError(absl::StrFormat(
            "interrupted after %d of %d layers; the same command goes on with those in %s", done_,
            model_.layers.size(), options_.state)),
        ExitCode::kNoMask);
  }

  absl::Status Write(const Checkpoint& checkpoint, const RunState& state,
                     const Json& settings) const {
    Json facts = {{"program", std::string("sparsefw-cli ") + SPARSEFW_VERSION},
                  {"settings", settings},
                  {"weights", WeightsOf(facts_)},
                  {"kept", KeptOf(facts_)},
                  {"dense", model_.dense},
                  {"layers", facts_}};
    SPARSEFW_RETURN_IF_ERROR(WriteOutputFolder(
        options_.out, checkpoint, model_, facts, [&](size_t layer) -> absl::StatusOr<LayerRecord> {
          SPARSEFW_ASSIGN_OR_RETURN(std::optional<LayerRecord> record, state.Find(layer));
          if (record) return *std::move(record);
          return FileError(absl::StrFormat("%s: %s is gone from %s", options_.out,
                                           model_.layers[layer].name, options_.state));
        }));
    Print(std::move(facts));
    return absl::OkStatus();
  }

 private:
  static bool interrupted(const std::stop_source& stop, const absl::Status& status) {
    return stop.stop_requested() && ExitCodeOf(status) == ExitCode::kServer;
  }

  void OnDone(size_t layer, const LayerRecord& record, bool before, absl::Duration time) {
    facts_[layer] = record.facts;
    facts_[layer].erase("inputs");
    ++done_;
    if (before) ++before_;
    if (options_.common.quiet) return;
    display_.Note(absl::StrFormat("[%d/%d] %s  %s  %s", done_, model_.layers.size(),
                                  model_.layers[layer].name, LayerNumbers(record.facts),
                                  before ? std::string("done before") : FormatSpan(time)));
  }

  void Print(Json facts) const {
    if (options_.common.json) {
      facts["out"] = options_.out;
      facts["state"] = options_.state;
      facts["done_before"] = before_;
      facts["total_s"] = absl::ToDoubleSeconds(absl::Now() - start_);
      console_.out << JsonText(facts);
      return;
    }
    const std::string dense = DenseNote(model_.dense);
    console_.out << ModelTable(facts_) << dense << (dense.empty() ? "" : "\n")
                 << absl::StrFormat(
                        "%s written in %s; %s may be deleted\n", client::Printable(options_.out),
                        FormatSpan(absl::Now() - start_), client::Printable(options_.state));
  }

  const PruneModelOptions& options_;
  const ModelLayers& model_;
  const Console& console_;
  ProgressDisplay& display_;
  const absl::Time start_;
  std::vector<Json> facts_;
  size_t done_ = 0;
  size_t before_ = 0;
};

}  // namespace

absl::Status Run(const PruneModelOptions& options, const Console& console) {
  SPARSEFW_RETURN_IF_ERROR(CheckOutputFolder(options.out, options.model));
  for (const std::string& folder : {options.model, options.out}) {
    if (IsWithin(options.state, folder)) {
      return UsageError(
          absl::StrFormat("--state-dir: %s must not be in %s", options.state, folder));
    }
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.model));
  SPARSEFW_ASSIGN_OR_RETURN(const ModelLayers model, FindLayers(checkpoint, options.grams));
  SPARSEFW_RETURN_IF_ERROR(CheckPattern(options.spec.pattern(), model));
  SPARSEFW_ASSIGN_OR_RETURN(const Json facts, FactsOf(options, model));
  ProgressDisplay display(console, absl::Now, options.common.quiet);
  std::stop_source stop;
  const Interrupt interrupt([&stop](int) { stop.request_stop(); });
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  // First: a state has the settings that it was begun with.
  SPARSEFW_RETURN_IF_ERROR(CheckJobs(*client, model, options.spec));
  SPARSEFW_ASSIGN_OR_RETURN(const auto state, RunState::Open(options.state, facts));
  ModelRun run(options, model, console, display);
  SPARSEFW_RETURN_IF_ERROR(run.Prune(*client, *state, stop));
  return run.Write(checkpoint, *state, facts["settings"]);
}

}  // namespace sparsefw::cli
