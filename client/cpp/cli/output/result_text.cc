#include "client/cpp/cli/output/result_text.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/output/format.h"
#include "client/cpp/cli/output/sweep_result.h"
#include "sparsefw/client/job_state.h"
#include "sparsefw/client/printable.h"

namespace sparsefw::cli {
namespace {

// Aligned "name  value" lines.
class Table {
 public:
  void Add(std::string name, std::string_view value) {
    rows_.push_back({std::move(name), client::Printable(value)});
  }
  // A share in per cent, aligned with those of other rows, and what it means.
  void AddShare(std::string name, double share, std::string_view note) {
    Add(std::move(name), absl::StrFormat("%8.3f %%  %s", 100 * share, note));
  }
  void AddBlank() { rows_.emplace_back(); }
  std::string Text() const {
    size_t width = std::string_view("certificate").size();  // results and states align alike
    for (const auto& row : rows_) width = std::max(width, row.first.size());
    std::string text;
    for (const auto& [name, value] : rows_) {
      if (!value.empty()) {
        text += absl::StrFormat("%-*s  %s", static_cast<int>(width), name, value);
      }
      text += "\n";
    }
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

std::string WarmStartName(const v1::WarmStart& start) {
  switch (start.source_case()) {
    case v1::WarmStart::kMask:
      return "given mask";
    case v1::WarmStart::kSaliency:
      return "given scores";
    case v1::WarmStart::kMethod:
      return MethodName(start.method());
    case v1::WarmStart::SOURCE_NOT_SET:
      break;
  }
  return MethodName(v1::METHOD_WANDA);
}

bool HasOwnWeights(const v1::SweepPoint& point) {
  return point.method() == v1::METHOD_SPARSEGPT || point.method() == v1::METHOD_ALPS;
}

std::string_view BestMask(v1::Candidate candidate) {
  switch (candidate) {
    case v1::CANDIDATE_WARM_START:
      return "no better mask found";
    case v1::CANDIDATE_ROUNDED:
      return "best mask: a rounded iterate";
    case v1::CANDIDATE_REFINED:
      return "best mask: refined by swaps";
    case v1::CANDIDATE_JOINT:
      return "mask and weights found together";
    default:
      return "";
  }
}

void AddReduction(const v1::Job& job, const v1::SweepPoint& point, Table& table) {
  const v1::JobResult& result = job.result();
  const v1::Losses& losses = result.losses();
  const bool iterative = point.method() == v1::METHOD_SPARSEFW;
  const bool own_weights = HasOwnWeights(point);
  const bool new_weights = own_weights || result.has_joint();
  if (!iterative && !new_weights && !point.swaps()) return;
  double reduction = result.relative_reduction();
  double start = losses.full() > 0 ? losses.warm_start() / losses.full() : 0;
  // As the loss above it, with G itself.
  if (const auto& unshrunk = losses.unshrunk(); unshrunk.full() > 0 && unshrunk.warm_start() > 0) {
    reduction = 1 - unshrunk.result() / unshrunk.warm_start();
    start = unshrunk.warm_start() / unshrunk.full();
  }
  // A one-shot method starts from its own mask.
  std::string note =
      absl::StrFormat("below the warm start (%s, %.3f %%); ",
                      iterative || own_weights ? WarmStartName(job.spec().warm_start())
                                               : MethodName(point.method()),
                      100 * start);
  note += new_weights ? std::string_view("with the updated weights") : BestMask(result.candidate());
  table.AddShare("reduction", reduction, note);
}

void AddCertificate(const v1::Losses& losses, Table& table) {
  const std::optional<double> certificate = Certificate(losses);
  if (!certificate || !(losses.full() > 0)) {
    table.Add("certificate", "none: the lower bound is 0");
    return;
  }
  table.AddShare("certificate", *certificate,
                 absl::StrFormat("unavoidable with these fixed weights: %.3f %% of %.3f %%%s",
                                 100 * losses.lower_bound() / losses.full(),
                                 100 * losses.mask() / losses.full(),
                                 losses.has_unshrunk() ? " (G shrunk)" : ""));
}

void AddLoss(const v1::Losses& losses, Table& table) {
  const double full = losses.full();
  if (!(full > 0)) {
    table.Add("loss", FormatLoss(losses.mask()) +
                          "; |WX|^2 is 0: weight or activations are only zeros, so no mask is "
                          "better than another");
    return;
  }
  const double loss = LossShare(losses).value_or(0);
  std::string note =
      absl::StrFormat("|WX - (M*W)X|^2 / |WX|^2; output energy kept: %.3f %%", 100 * (1 - loss));
  if (losses.has_reconstructed()) {
    note = "|WX - W'X|^2 / |WX|^2 with the updated weights W'";
    // With a shrinkage, the loss of the mask itself is measured on the shrunk matrix only.
    if (!losses.has_unshrunk()) {
      note += absl::StrFormat("; mask alone %.3f %%", 100 * losses.mask() / full);
    }
  }
  table.AddShare("loss", loss, note);
}

void AddHeadline(const v1::Job& job, const v1::SweepPoint& point, Table& table) {
  const v1::JobResult& result = job.result();
  const v1::Losses& losses = result.losses();
  AddLoss(losses, table);
  AddReduction(job, point, table);
  if (point.method() == v1::METHOD_SPARSEFW) AddCertificate(losses, table);
  if (const std::optional<double> removed = Removed(job)) {
    const int64_t weights = job.shape(0) * job.shape(1);
    table.AddShare("sparsity", *removed,
                   absl::StrFormat("%d of %d weights removed; %d kept",
                                   weights - result.kept_count(), weights, result.kept_count()));
  }
}

std::string_view WhyStopped(v1::StopReason reason) {
  switch (reason) {
    case v1::STOP_REASON_GAP:
      return "converged";
    case v1::STOP_REASON_DEADLINE:
      return "stopped by the deadline";
    case v1::STOP_REASON_CANCELLED:
      return "stopped by cancel";
    default:
      return "all were run";
  }
}

std::string JointText(const v1::JobResult& result) {
  const v1::JointOutcome& joint = result.joint();
  const double full = result.losses().full();
  return absl::StrFormat(
      "%d exchanges%s; %.3f %% below the %.3f %% of its start with the weights solved",
      joint.exchanges(), joint.converged() ? "" : " (cut short)", 100 * joint.reduction(),
      full > 0 ? 100 * joint.start_loss() / full : 0);
}

std::string MethodText(const v1::JobResult& result, const v1::SweepPoint& point) {
  std::string text = MethodName(point.method());
  if (point.method() == v1::METHOD_SPARSEFW) {
    text += absl::StrFormat(", alpha %g, %d iterations (%s), drift %.1e", point.alpha(),
                            result.iterations(), WhyStopped(result.stop_reason()), result.drift());
    if (result.has_screening()) {
      text +=
          absl::StrFormat(", %d screened (%.1f%% of the weights)", result.screening().iterations(),
                          100 * result.screening().active_share());
    }
  }
  if (result.has_damping()) text += absl::StrFormat(", damping %g", result.damping());
  return text;
}

void AddWhat(const v1::Job& job, const v1::SweepPoint& point, Table& table) {
  table.Add("job", absl::StrFormat("%s, %s", job.name(), JobStateName(job.state())));
  if (job.attempts() > 1) {
    table.Add("attempts",
              absl::StrFormat("%d; the server ended during the others", job.attempts()));
  }
  std::string layer = PatternName(point.pattern());
  if (job.shape_size() == 2) {
    layer = absl::StrFormat("[%d, %d], %s", job.shape(0), job.shape(1), layer);
  }
  table.Add("layer",
            layer + absl::StrFormat(", %s to remove", FormatPercent(SparsityOf(point.pattern()))));
}

// The losses themselves, for comparison with those of other programs.
void AddLosses(const v1::Losses& losses, const v1::SweepPoint& point, Table& table) {
  std::vector<std::string> first = {"full " + FormatLoss(losses.full())};
  std::vector<std::string> second;
  if (point.method() == v1::METHOD_SPARSEFW) {
    first.push_back("warm start " + FormatLoss(losses.warm_start()));
    first.push_back("relaxed " + FormatLoss(losses.relaxed()));
    second.push_back("rounded " + FormatLoss(losses.rounded()));
    second.push_back("final " + FormatLoss(losses.mask()));
    second.push_back("lower bound " + FormatLoss(losses.lower_bound()));
  } else {
    if (HasOwnWeights(point) || point.swaps()) {
      first.push_back("warm start " + FormatLoss(losses.warm_start()));
    }
    first.push_back("final " + FormatLoss(losses.mask()));
  }
  if (losses.has_reconstructed()) {
    second.push_back("updated weights " + FormatLoss(losses.reconstructed()));
  }
  table.Add("losses", absl::StrJoin(first, ", "));
  if (!second.empty()) table.Add("", absl::StrJoin(second, ", "));
}

std::string TimesText(const v1::Job& job, const ClientTimes& times) {
  const v1::Timings& server = job.result().timings();
  std::vector<std::string> parts;
  if (times.upload) parts.push_back("upload " + FormatSpan(*times.upload));
  parts.push_back("queue " + FormatSpan(FromProto(server.queue())));
  parts.push_back("solve " + FormatSpan(FromProto(server.solve())));
  const std::string text = absl::StrJoin(parts, ", ");
  const auto total = TotalTime(job, times);
  return total ? absl::StrFormat("%s: %s", FormatSpan(*total), text) : text;
}

void AddDetails(const v1::Job& job, const v1::SweepPoint& point, const ClientTimes& times,
                const OutputOptions& output, Table& table) {
  const v1::JobResult& result = job.result();
  if (const v1::Preset preset = job.spec().preset(); preset != v1::PRESET_UNSPECIFIED) {
    std::string text = PresetName(preset);
    if (job.preset_overrides_size() > 0) {
      absl::StrAppend(&text, "; overridden by: ", absl::StrJoin(job.preset_overrides(), ", "));
    }
    table.Add("preset", text);
  }
  table.Add("method", MethodText(result, point));
  if (job.spec().shrinkage() > 0) {
    table.Add("shrinkage",
              absl::StrFormat("s = %g: the solve and the losses below are with (1 - s) "
                              "G + s diag(G)",
                              job.spec().shrinkage()));
  }
  if (point.swaps()) table.Add("swaps", absl::StrFormat("%d", result.swaps()));
  if (result.has_joint()) table.Add("joint", JointText(result));
  AddLosses(result.losses(), point, table);
  table.Add("device", result.device());
  table.Add("time", TimesText(job, times));
  if (!output.out.empty()) table.Add("mask", output.out);
  if (!output.out_weights.empty()) table.Add("weights", output.out_weights);
  if (output.out.empty() && !result.mask().empty()) {
    table.Add("mask", absl::StrFormat("sparsefw-cli fetch %s --out FILE", job.name()));
  }
}

}  // namespace

std::string ResultText(const v1::Job& job, const ClientTimes& times, const OutputOptions& output) {
  Table table;
  v1::SweepPoint point = ResultPoint(job);
  if (job.has_result()) {
    AddHeadline(job, point, table);
    table.AddBlank();
  }
  AddWhat(job, point, table);
  if (job.has_result()) AddDetails(job, point, times, output, table);
  if (job.has_error()) table.Add("error", job.error().message());
  if (job.result().sweep_size() == 0) return table.Text();
  return table.Text() + "\n" + SweepText(job);
}

std::string WeightsWithoutFile(const v1::Job& job, const OutputOptions& output) {
  const v1::Losses& losses = job.result().losses();
  if (!losses.has_reconstructed() || !output.out_weights.empty()) return "";
  std::string text =
      "--out-weights is not given: the loss is that of new weights, which are in no file";
  if (losses.full() > 0) {
    absl::StrAppendFormat(&text, "; the mask alone loses %.3f %%%s",
                          100 * losses.mask() / losses.full(),
                          losses.has_unshrunk() ? " (G shrunk)" : "");
  }
  return text;
}

std::string StatusText(const v1::Job& job) {
  if (client::IsTerminal(job.state()) && job.has_result()) return ResultText(job, {}, {});
  Table table;
  const v1::SweepPoint point = ResultPoint(job);
  AddWhat(job, point, table);
  table.Add("method", MethodName(point.method()));
  if (job.state() == v1::JOB_STATE_QUEUED) table.Add("ahead", std::to_string(job.queue_position()));
  if (job.has_progress()) {
    const v1::Progress& progress = job.progress();
    table.Add("progress",
              FormatProgress(job, progress.has_remaining_estimate()
                                      ? std::optional(FromProto(progress.remaining_estimate()))
                                      : std::nullopt));
  }
  if (job.has_error()) table.Add("error", job.error().message());
  return table.Text();
}

}  // namespace sparsefw::cli
