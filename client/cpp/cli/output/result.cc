#include "client/cpp/cli/output/result.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/output/sweep_result.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/error.h"

namespace sparsefw::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinities and no NaN.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Seconds(const std::optional<absl::Duration>& span) {
  return span ? Json(absl::ToDoubleSeconds(*span)) : Json(nullptr);
}

Json UnshrunkJson(const v1::Losses& losses) {
  if (!losses.has_unshrunk()) return nullptr;
  return {{"full", Number(losses.unshrunk().full())},
          {"warm_start", Number(losses.unshrunk().warm_start())},
          {"result", Number(losses.unshrunk().result())}};
}

Json LossesJson(const v1::Losses& losses) {
  return Json{
      {"full", Number(losses.full())},
      {"warm_start", Number(losses.warm_start())},
      {"relaxed", Number(losses.relaxed())},
      {"rounded", Number(losses.rounded())},
      {"final", Number(losses.mask())},
      {"lower_bound", Number(losses.lower_bound())},
      {"reconstructed", losses.has_reconstructed() ? Number(losses.reconstructed()) : nullptr},
      {"unshrunk", UnshrunkJson(losses)}};
}

Json JointJson(const v1::JobResult& result) {
  if (!result.has_joint()) return nullptr;
  const v1::JointOutcome& joint = result.joint();
  return Json{{"start_loss", Number(joint.start_loss())},
              {"reduction", Number(joint.reduction())},
              {"exchanges", joint.exchanges()},
              {"converged", joint.converged()}};
}

Json Timings(const v1::Job& job, const ClientTimes& times) {
  const bool done = job.has_result();
  const v1::Timings& server = job.result().timings();
  return Json{{"upload_s", Seconds(times.upload)},
              {"queue_s", done ? Seconds(FromProto(server.queue())) : Json(nullptr)},
              {"solve_s", done ? Seconds(FromProto(server.solve())) : Json(nullptr)},
              {"total_s", Seconds(TotalTime(job, times))}};
}

Json ScreeningJson(const v1::JobResult& result) {
  if (!result.has_screening()) return nullptr;
  const v1::Screening& screening = result.screening();
  return {{"epochs", screening.epochs()},
          {"iterations", screening.iterations()},
          {"active_share", Number(screening.active_share())}};
}

}  // namespace

std::optional<absl::Duration> TotalTime(const v1::Job& job, const ClientTimes& times) {
  if (times.total) return times.total;
  if (!job.has_create_time() || !job.has_end_time()) return std::nullopt;
  return FromProto(job.end_time()) - FromProto(job.create_time());
}

std::optional<double> LossShare(const v1::Losses& losses) {
  const bool of_new = losses.has_reconstructed();
  double full = losses.full();
  double loss = of_new ? losses.reconstructed() : losses.mask();
  if (losses.has_unshrunk()) {
    full = losses.unshrunk().full();
    loss = losses.unshrunk().result();
  }
  return full > 0 ? std::optional(loss / full) : std::nullopt;
}

std::optional<double> Certificate(const v1::Losses& losses) {
  if (!(losses.lower_bound() > 0) || !(losses.mask() > 0)) return std::nullopt;
  return losses.lower_bound() / losses.mask();
}

std::optional<double> Removed(const v1::Job& job) {
  int64_t weights = 0;
  if (!job.has_result() || job.shape_size() != 2 ||
      __builtin_mul_overflow(job.shape(0), job.shape(1), &weights) || weights < 1) {
    return std::nullopt;
  }
  return 1 - static_cast<double>(job.result().kept_count()) / static_cast<double>(weights);
}

Json ResultNumbersJson(const v1::JobResult& result) {
  return Json{{"kept", result.kept_count()},
              {"losses", LossesJson(result.losses())},
              {"relative_reduction", Number(result.relative_reduction())},
              {"iterations", result.iterations()},
              {"stop_reason", StopReasonName(result.stop_reason())},
              {"candidate", CandidateName(result.candidate())},
              {"swaps", result.swaps()},
              {"drift", Number(result.drift())},
              {"damping", result.has_damping() ? Number(result.damping()) : nullptr},
              {"joint", JointJson(result)},
              {"screening", ScreeningJson(result)}};
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
  const v1::Preset preset = job.spec().preset();
  json["preset"] = preset == v1::PRESET_UNSPECIFIED ? Json(nullptr) : Json(PresetName(preset));
  json["preset_overrides"] =
      Json(std::vector<std::string>(job.preset_overrides().begin(), job.preset_overrides().end()));
  json["pattern"] = PatternName(point.pattern());
  json["shrinkage"] = Number(job.spec().shrinkage());
  json["shape"] = Json::array();
  for (const int64_t dim : job.shape()) json["shape"].push_back(dim);
  const auto share = [](std::optional<double> value) { return value ? Number(*value) : nullptr; };
  json["loss"] = share(done ? LossShare(result.losses()) : std::nullopt);
  json["certificate"] = share(done ? Certificate(result.losses()) : std::nullopt);
  json["sparsity"] = share(Removed(job));
  for (const char* key :
       {"kept", "losses", "relative_reduction", "iterations", "stop_reason", "candidate"}) {
    json[key] = number(key);
  }
  json["device"] = done ? Json(result.device()) : Json(nullptr);
  json["timings"] = Timings(job, times);
  for (const char* key : {"swaps", "drift", "damping", "joint", "screening"})
    json[key] = number(key);
  json["attempts"] = job.attempts();
  if (result.sweep_size() > 0) {
    json["best_point"] = result.best_point();
    json["sweep"] = SweepJson(job);
  }
  return json;
}

Json StatusJson(const v1::Job& job) {
  Json json = ResultJson(job, {});
  json["queue_position"] =
      job.state() == v1::JOB_STATE_QUEUED ? Json(job.queue_position()) : Json(nullptr);
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
  json["error"] = job.has_error() ? Json(job.error().message()) : Json(nullptr);
  const auto& labels = job.spec().labels();
  json["labels"] = std::map<std::string, std::string>(labels.begin(), labels.end());
  return json;
}

std::map<std::string, std::string> ResultMetadata(const v1::Job& job) {
  std::map<std::string, std::string> metadata;
  const Json json = ResultJson(job, {});
  // The mask's file may be the only one, and without the new weights it loses more.
  metadata["loss_of"] = job.result().losses().has_reconstructed() ? "new weights" : "mask";
  for (const auto& [key, value] : json.items()) {
    // An interrupted job leaves the same file as another one.
    if (key == "timings" || key == "attempts") continue;
    if (key == "losses") {
      for (const auto& [name, loss] : value.items()) metadata["losses." + name] = loss.dump();
    } else {
      metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  return metadata;
}

bool HasMask(const v1::Job& job) { return !job.result().mask().empty(); }

OutputOptions OutputsOf(const v1::Job& job, OutputOptions output) {
  if (!HasMask(job)) return {};
  if (job.state() == v1::JOB_STATE_FAILED) output.out_weights.clear();
  return output;
}

absl::Status JobOutcome(const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_FAILED && HasMask(job)) return absl::OkStatus();
  if (job.state() == v1::JOB_STATE_CANCELLED) {
    const std::string why = job.has_error() ? ": " + job.error().message() : "";
    return WithExitCode(absl::CancelledError(absl::StrFormat(
                            "%s was cancelled before it had a mask%s", job.name(), why)),
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
