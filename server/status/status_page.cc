#include "server/status/status_page.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "server/identity/sha256.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kTemplate =
#include "status_html.inc"
    ;

// 'sha256-...' of what stands between the two.
std::string HashBetween(std::string_view begin, std::string_view end) {
  const size_t first = kTemplate.find(begin) + begin.size();
  const std::string_view inside = kTemplate.substr(first, kTemplate.find(end, first) - first);
  const Sha256Digest digest = Sha256(inside);
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.bytes.data()),
                                digest.bytes.size());
  return absl::StrFormat("'sha256-%s'", absl::Base64Escape(bytes));
}

using Json = nlohmann::ordered_json;

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

Json Common(const LiveJob& job, const StatusFacts& facts, absl::Time now) {
  Json json = {{"number", job.number},
               {"method", job.method},
               {"pattern", job.pattern},
               {"shape", {job.rows, job.cols}},
               {"age_s", absl::ToDoubleSeconds(now - job.create_time)}};
  if (facts.show_names) {
    json["name"] = job.name;
    json["labels"] = job.labels.labels;
    json["labels_left_out"] = job.labels.left_out;
  }
  return json;
}

Json Share(std::optional<double> share) { return share ? Json(*share) : Json(nullptr); }

Json Ended(const EndedJob& job, const StatusFacts& facts, absl::Time now) {
  Json json = Common(job.job, facts, now);
  json["state"] = NameOf(job.end.state);
  json["reason"] = job.end.reason;
  json["end_time"] = Seconds(job.end.time);
  json["ran_s"] = job.end.ran ? Json(absl::ToDoubleSeconds(*job.end.ran)) : Json(nullptr);
  json["loss"] = Share(job.end.loss);
  json["certificate"] = Share(job.end.certificate);
  return json;
}

Json Running(const LiveJob& job, const StatusFacts& facts, absl::Time now) {
  const ProgressReport& report = job.progress;
  Json json = Common(job, facts, now);
  json["attempts"] = job.attempts;
  json["running_s"] = absl::ToDoubleSeconds(now - job.start_time);
  json["iteration"] = report.iteration;
  json["iterations_total"] = report.iterations_total;
  json["sweep_point"] = report.sweep_point;
  json["warm_start_loss"] = report.warm_start_loss;
  // A share of the warm start's loss, as is JobResult.relative_reduction.
  json["reduction"] =
      report.warm_start_loss > 0 ? 1 - report.best_loss / report.warm_start_loss : 0.0;
  json["relative_gap"] = report.relaxed_loss > 0 ? report.gap / report.relaxed_loss : 0.0;
  Json trace = Json::array();
  for (const TracePoint& point : job.trace) {
    trace.push_back({point.iteration, point.relaxed_loss, point.best_loss});
  }
  json["trace"] = std::move(trace);
  return json;
}

Json Usage(int64_t used, int64_t budget) { return {{"used", used}, {"budget", budget}}; }

Json Devices(const Gauges& gauges) {
  Json devices = Json::array();
  for (const DeviceUsage& usage : gauges.devices) {
    devices.push_back({{"name", usage.device.name},
                       {"jobs", usage.jobs},
                       {"streams", usage.device.streams},
                       {"memory", Usage(usage.reserved_bytes, usage.device.memory_bytes)},
                       {"lost", usage.lost}});
  }
  return devices;
}

}  // namespace

std::map<std::string, MetricsEndpoint::Page, std::less<>> StatusPages(
    std::function<std::string()> document) {
  const std::string policy = absl::StrFormat(
      "default-src 'none'; style-src %s; script-src %s; connect-src 'self'; "
      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      HashBetween("<style>", "</style>"), HashBetween("<script>", "</script>"));
  const auto html = [] { return std::string(kTemplate); };
  return {{"/", {"text/html; charset=utf-8", policy, html}},
          {"/status.json", {"application/json", "", std::move(document)}}};
}

std::string StatusDocument(const StatusFacts& facts, const Gauges& gauges,
                           const LiveJobs::View& jobs, const std::vector<Refusal>& refusals,
                           absl::Time now) {
  Json json = {{"version", facts.version},
               {"now", Seconds(now)},
               {"uptime_s", absl::ToDoubleSeconds(now - facts.start_time)},
               {"ready", facts.not_ready.empty()},
               {"not_ready", facts.not_ready},
               {"default_device", facts.default_device},
               {"workers", facts.workers}};
  json["jobs"] = {{"queued", gauges.jobs_queued}, {"running", gauges.jobs_running}};
  if (gauges.jobs_kept.has_value()) {
    json["jobs"]["succeeded"] = gauges.jobs_kept->succeeded;
    json["jobs"]["failed"] = gauges.jobs_kept->failed;
    json["jobs"]["cancelled"] = gauges.jobs_kept->cancelled;
  }
  json["running"] = Json::array();
  for (const LiveJob& job : jobs.running) json["running"].push_back(Running(job, facts, now));
  json["queue"] = Json::array();
  for (const LiveJob& job : jobs.queued) json["queue"].push_back(Common(job, facts, now));
  json["ended"] = Json::array();
  for (const EndedJob& job : jobs.ended) json["ended"].push_back(Ended(job, facts, now));
  json["devices"] = Devices(gauges);
  json["tensor_memory"] = Usage(gauges.tensors.used_bytes, gauges.tensors.budget_bytes);
  json["solve_memory"] = Usage(gauges.solve_memory_used_bytes, gauges.solve_memory_budget_bytes);
  json["staging_memory"] = Usage(gauges.staging_used_bytes, gauges.staging_budget_bytes);
  json["disk"] = Usage(gauges.tensors.disk_used_bytes, gauges.tensors.disk_budget_bytes);
  json["tensors"] = gauges.tensors.tensors;
  json["tensors_corrupt"] = gauges.tensors.corrupt;
  json["uploads"] = gauges.tensors.uploads;
  json["watchers"] = gauges.watchers;
  json["refusals"] = Json::array();
  for (const Refusal& refusal : refusals) {
    json["refusals"].push_back({{"time", Seconds(refusal.time)},
                                {"method", refusal.method},
                                {"code", refusal.code},
                                {"reason", refusal.reason},
                                {"count", refusal.count}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sparsefw::server
