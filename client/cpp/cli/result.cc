#include "client/cpp/cli/result.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/format.h"
#include "client/cpp/cli/names.h"
#include "client/cpp/cli/sweep_result.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/error.h"
#include "sparsefw/client/job_state.h"

namespace sparsefw::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinities and no NaN.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Seconds(const std::optional<absl::Duration>& span) {
  return span ? Json(absl::ToDoubleSeconds(*span)) : Json(nullptr);
}

std::optional<absl::Duration> ServerTotal(const v1::Job& job) {
  if (!job.has_create_time() || !job.has_end_time()) return std::nullopt;
  return FromProto(job.end_time()) - FromProto(job.create_time());
}

std::optional<absl::Duration> Total(const v1::Job& job, const ClientTimes& times) {
  return times.total ? times.total : ServerTotal(job);
}

Json LossesJson(const v1::Losses& losses) {
  return Json{
      {"full", Number(losses.full())},
      {"warm_start", Number(losses.warm_start())},
      {"relaxed", Number(losses.relaxed())},
      {"rounded", Number(losses.rounded())},
      {"final", Number(losses.final())},
      {"lower_bound", Number(losses.lower_bound())},
      {"reconstructed", losses.has_reconstructed() ? Number(losses.reconstructed()) : nullptr}};
}

Json Timings(const v1::Job& job, const ClientTimes& times) {
  const bool done = job.has_result();
  const v1::Timings& server = job.result().timings();
  return Json{{"upload_s", Seconds(times.upload)},
              {"queue_s", done ? Seconds(FromProto(server.queue())) : Json(nullptr)},
              {"solve_s", done ? Seconds(FromProto(server.solve())) : Json(nullptr)},
              {"total_s", Seconds(Total(job, times))}};
}

std::string ShapeText(const v1::Job& job) {
  return job.shape_size() == 2 ? absl::StrFormat("[%d, %d]", job.shape(0), job.shape(1)) : "[?]";
}

double Weights(const v1::Job& job) {
  return job.shape_size() == 2
             ? static_cast<double>(job.shape(0)) * static_cast<double>(job.shape(1))
             : 0;
}

// Aligned "name  value" lines.
class Table {
 public:
  void Add(const std::string& name, const std::string& value) { rows_.push_back({name, value}); }
  std::string Text() const {
    size_t width = 0;
    for (const auto& row : rows_) width = std::max(width, row.first.size());
    std::string text;
    for (const auto& [name, value] : rows_) {
      text += absl::StrFormat("%-*s  %s\n", static_cast<int>(width), name, value);
    }
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

void AddWhat(const v1::Job& job, Table& table) {
  table.Add("job", job.name());
  table.Add("state", JobStateName(job.state()));
  const v1::SweepPoint point = ResultPoint(job);
  table.Add("method", MethodName(point.method()));
  table.Add("pattern", absl::StrFormat("%s, %s removed", PatternName(point.pattern()),
                                       FormatPercent(SparsityOf(point.pattern()))));
  table.Add("shape", ShapeText(job));
}

std::string LossText(double loss, double full) {
  if (!(full > 0)) return FormatLoss(loss);
  return absl::StrFormat("%-12s %6.3f %% of full", FormatLoss(loss), 100 * loss / full);
}

std::string WhyStopped(const v1::JobResult& result) {
  switch (result.stop_reason()) {
    case v1::GAP:
      return "the gap was reached";
    case v1::STOPPED_BY_DEADLINE:
      return "stopped by the deadline";
    case v1::STOPPED_BY_CANCEL:
      return "stopped by cancel";
    default:
      return "all were run";
  }
}

void AddResult(const v1::Job& job, Table& table) {
  const v1::JobResult& result = job.result();
  const v1::Losses& losses = result.losses();
  const double weights = Weights(job);
  const auto kept = static_cast<double>(result.kept_count());
  table.Add("kept", absl::StrFormat("%d weights (%s)", result.kept_count(),
                                    FormatPercent(weights > 0 ? kept / weights : 0)));
  table.Add("loss, full", absl::StrFormat("%-12s (everything pruned)", FormatLoss(losses.full())));
  const v1::SweepPoint point = ResultPoint(job);
  const bool iterative = point.method() == v1::SPARSEFW;
  const bool sparsegpt = point.method() == v1::SPARSEGPT;  // compared with the warm start's mask
  if (iterative || sparsegpt || point.swaps()) {
    table.Add("loss, warm start", LossText(losses.warm_start(), losses.full()));
  }
  if (iterative) {
    table.Add("loss, relaxed", LossText(losses.relaxed(), losses.full()));
    table.Add("loss, rounded", LossText(losses.rounded(), losses.full()));
  }
  table.Add("loss, final", LossText(losses.final(), losses.full()));
  if (losses.has_reconstructed()) {
    table.Add("loss, updated weights", LossText(losses.reconstructed(), losses.full()));
  }
  if (iterative) table.Add("lower bound", LossText(losses.lower_bound(), losses.full()));
  if (iterative || point.swaps()) {
    table.Add("reduction", absl::StrFormat("%s below the warm start (best: %s)",
                                           FormatPercent(result.relative_reduction()),
                                           CandidateName(result.candidate())));
  } else if (sparsegpt) {
    table.Add("reduction", absl::StrFormat("%s below the warm start (with the updated weights)",
                                           FormatPercent(result.relative_reduction())));
  }
  if (iterative) {
    table.Add("iterations", absl::StrFormat("%d, %s", result.iterations(), WhyStopped(result)));
    table.Add("drift", absl::StrFormat("%.1e", result.drift()));
  }
  if (point.swaps()) table.Add("swaps", absl::StrFormat("%d", result.swaps()));
  if (result.has_damping()) table.Add("damping", absl::StrFormat("%g", result.damping()));
  table.Add("device", result.device());
}

void AddTimes(const v1::Job& job, const ClientTimes& times, Table& table) {
  const v1::Timings& server = job.result().timings();
  std::string text;
  if (times.upload) text += absl::StrFormat("upload %s  ", FormatSpan(*times.upload));
  text += absl::StrFormat("queue %s  solve %s", FormatSpan(FromProto(server.queue())),
                          FormatSpan(FromProto(server.solve())));
  if (const auto total = Total(job, times)) {
    text += absl::StrFormat("  total %s", FormatSpan(*total));
  }
  table.Add("time", text);
}

}  // namespace

Json ResultNumbersJson(const v1::JobResult& result) {
  return Json{{"kept", result.kept_count()},
              {"losses", LossesJson(result.losses())},
              {"relative_reduction", Number(result.relative_reduction())},
              {"iterations", result.iterations()},
              {"stop_reason", StopReasonName(result.stop_reason())},
              {"candidate", CandidateName(result.candidate())},
              {"swaps", result.swaps()},
              {"drift", Number(result.drift())},
              {"damping", result.has_damping() ? Number(result.damping()) : nullptr}};
}

Json ResultJson(const v1::Job& job, const ClientTimes& times) {
  const v1::JobResult& result = job.result();
  const bool done = job.has_result();
  const v1::SweepPoint point = ResultPoint(job);
  const Json numbers = ResultNumbersJson(result);
  const auto number = [&](const char* key) { return done ? numbers[key] : Json(nullptr); };
  Json json;
  json["job"] = job.name();
  json["state"] = JobStateName(job.state());
  json["method"] = MethodName(point.method());
  json["pattern"] = PatternName(point.pattern());
  json["shape"] = Json::array();
  for (const int64_t dim : job.shape()) json["shape"].push_back(dim);
  for (const char* key :
       {"kept", "losses", "relative_reduction", "iterations", "stop_reason", "candidate"}) {
    json[key] = number(key);
  }
  json["device"] = done ? Json(result.device()) : Json(nullptr);
  json["timings"] = Timings(job, times);
  for (const char* key : {"swaps", "drift", "damping"}) json[key] = number(key);
  if (result.sweep_size() > 0) {
    json["best_point"] = result.best_point();
    json["sweep"] = SweepJson(job);
  }
  return json;
}

Json StatusJson(const v1::Job& job) {
  Json json = ResultJson(job, {});
  json["queue_position"] = job.state() == v1::QUEUED ? Json(job.queue_position()) : Json(nullptr);
  json["progress"] = nullptr;
  if (job.has_progress()) {
    const v1::Progress& progress = job.progress();
    json["progress"] = Json{{"iteration", progress.iteration()},
                            {"iterations_total", progress.iterations_total()},
                            {"relaxed_loss", Number(progress.relaxed_loss())},
                            {"gap", Number(progress.gap())},
                            {"best_loss", Number(progress.best_loss())},
                            {"remaining_s", Seconds(FromProto(progress.remaining_estimate()))}};
  }
  json["error"] = job.state() == v1::FAILED ? Json(job.error().message()) : Json(nullptr);
  const auto& labels = job.spec().labels();
  json["labels"] = std::map<std::string, std::string>(labels.begin(), labels.end());
  return json;
}

std::string ResultText(const v1::Job& job, const ClientTimes& times) {
  Table table;
  AddWhat(job, table);
  if (job.has_result()) {
    AddResult(job, table);
    AddTimes(job, times, table);
  }
  if (job.state() == v1::FAILED) table.Add("error", job.error().message());
  if (job.result().sweep_size() == 0) return table.Text();
  return table.Text() + "\n" + SweepText(job);
}

std::string StatusText(const v1::Job& job) {
  if (client::IsTerminal(job.state()) && job.has_result()) return ResultText(job, {});
  Table table;
  AddWhat(job, table);
  if (job.state() == v1::QUEUED) table.Add("ahead", std::to_string(job.queue_position()));
  if (job.has_progress()) table.Add("progress", FormatProgress(job.progress()));
  if (job.state() == v1::FAILED) table.Add("error", job.error().message());
  return table.Text();
}

std::map<std::string, std::string> ResultMetadata(const v1::Job& job) {
  std::map<std::string, std::string> metadata;
  const Json json = ResultJson(job, {});
  for (const auto& [key, value] : json.items()) {
    if (key == "timings") continue;
    if (key == "losses") {
      for (const auto& [name, loss] : value.items()) metadata["losses." + name] = loss.dump();
    } else {
      metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  metadata["sparsity"] = Json(SparsityOf(ResultPoint(job).pattern())).dump();
  return metadata;
}

absl::Status JobOutcome(const v1::Job& job) {
  if (job.state() != v1::FAILED && !job.result().mask().empty()) return absl::OkStatus();
  if (job.state() == v1::CANCELLED) {
    return WithExitCode(
        absl::CancelledError(absl::StrFormat("%s was cancelled before it had a mask", job.name())),
        ExitCode::kNoMask);
  }
  const absl::Status error = client::StatusFromProto(job.error());
  const bool late = absl::IsDeadlineExceeded(error);
  const std::string message = absl::StrFormat(
      "%s %s: %s", job.name(), late ? "passed its deadline" : "failed",
      job.error().message().empty() ? "it ended without a mask" : job.error().message());
  return WithExitCode(absl::AbortedError(message), late ? ExitCode::kNoMask : ExitCode::kJobFailed);
}

}  // namespace sparsefw::cli
