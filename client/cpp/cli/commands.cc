// The commands about jobs and servers; submit and gram have files of their own.
#include "client/cpp/cli/commands.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cpp/cli/credentials.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/output/format.h"
#include "client/cpp/cli/output/job_list.h"
#include "client/cpp/cli/output/json_text.h"
#include "client/cpp/cli/output/result.h"
#include "client/cpp/cli/output/result_text.h"
#include "client/cpp/cli/session.h"
#include "client/cpp/cli/trace.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/enum_names.h"
#include "sparsefw/client/health.h"
#include "sparsefw/client/job_state.h"
#include "sparsefw/client/printable.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<v1::Job> Follow(client::Client& client, const std::string& name,
                               ProgressDisplay& display) {
  const Ticker ticker(display);
  return client.WaitJob(name, [&display](const v1::JobEvent& event) { display.OnJob(event); });
}

// The job goes on without the command that watches it.
std::function<void(int)> LeaveRunning(const std::string& job, ProgressDisplay& display) {
  return [&job, &display](int number) {
    display.Note(absl::StrFormat("sparsefw-cli: no longer watching %s; it goes on", job));
    EndBySignal(number);
  };
}

void PrintResult(const v1::Job& job, bool json, const OutputOptions& output,
                 const Console& console) {
  if (json) {
    console.out << JsonText(ResultJson(job, {}));
  } else if (job.has_result()) {
    console.out << ResultText(job, {}, output);
  }
}

std::string MethodNames(const v1::ServerInfo& info) {
  std::vector<std::string> names;
  for (const int method : info.methods()) {
    names.push_back(MethodName(static_cast<v1::Method>(method)));
  }
  return absl::StrJoin(names, ", ");
}

std::string DTypeNames(const google::protobuf::RepeatedField<int>& dtypes) {
  std::vector<std::string> names;
  for (const int dtype : dtypes)
    names.push_back(client::ShortName(static_cast<v1::DataType>(dtype)));
  return absl::StrJoin(names, ", ");
}

// Only devices with memory of their own run jobs under the pool.
bool HasPool(const v1::Device& device) { return device.streams() > 0; }

Json DeviceJson(const v1::Device& device) {
  Json json = {{"name", device.name()},
               {"description", device.description()},
               {"memory_bytes", device.memory_bytes()},
               {"memory_free_bytes", device.memory_free_bytes()}};
  if (HasPool(device)) {
    json.update(Json{{"job_memory_bytes", device.job_memory_bytes()},
                     {"job_memory_used_bytes", device.job_memory_used_bytes()},
                     {"streams", device.streams()},
                     {"running_jobs", device.running_jobs()},
                     {"lost", device.lost()}});
  }
  return json;
}

// The state of a device's job pool, printed after its name and size.
std::string PoolText(const v1::Device& device) {
  if (!HasPool(device)) return "";
  if (device.lost()) return "; LOST until the server restarts";
  return absl::StrFormat("; %d of %d streams busy, %s of %s reserved", device.running_jobs(),
                         device.streams(),
                         FormatBytes(static_cast<double>(device.job_memory_used_bytes())),
                         FormatBytes(static_cast<double>(device.job_memory_bytes())));
}

std::string SourceName(const v1::Setting& setting) {
  return absl::AsciiStrToLower(client::ShortName(setting.source()));
}

// {"host-memory": {"value": "8GiB", "source": "default"}, ...}
Json SettingsJson(const v1::ServerInfo& info) {
  Json json = Json::object();
  for (const v1::Setting& setting : info.settings()) {
    json[setting.name()] = Json{{"value", setting.value()}, {"source", SourceName(setting)}};
  }
  return json;
}

Json InfoJson(const v1::ServerInfo& info) {
  Json devices = Json::array();
  for (const v1::Device& device : info.devices()) devices.push_back(DeviceJson(device));
  std::vector<std::string> methods;
  for (const int method : info.methods()) {
    methods.push_back(MethodName(static_cast<v1::Method>(method)));
  }
  return Json{
      {"version", info.version()},
      {"devices", devices},
      {"default_device", info.default_device()},
      {"default_device_reason", info.default_device_reason()},
      {"methods", methods},
      {"patterns", std::vector<std::string>(info.patterns().begin(), info.patterns().end())},
      {"workers", info.workers()},
      {"max_tensor_bytes", info.max_tensor_bytes()},
      {"host_memory_bytes", info.host_memory_bytes()},
      {"host_memory_used_bytes", info.host_memory_used_bytes()},
      {"max_queued_jobs", info.max_queued_jobs()},
      {"queued_jobs", info.queued_jobs()},
      {"running_jobs", info.running_jobs()},
      {"draining", info.draining()},
      {"uptime_s", absl::ToDoubleSeconds(FromProto(info.uptime()))},
      {"settings", SettingsJson(info)}};
}

void PrintInfo(const v1::ServerInfo& info, const std::string& address, std::ostream& out) {
  const auto line = [&out](const char* name, const std::string& value) {
    out << absl::StrFormat("%-16s%s\n", name, client::Printable(value));
  };
  line("server",
       absl::StrFormat("%s, version %s, up %s%s", address, info.version(),
                       FormatSpan(FromProto(info.uptime())), info.draining() ? ", draining" : ""));
  for (const v1::Device& device : info.devices()) {
    line("device", absl::StrFormat("%s: %s, %s%s", device.name(), device.description(),
                                   FormatBytes(static_cast<double>(device.memory_bytes())),
                                   PoolText(device)));
  }
  line("default device",
       absl::StrFormat("%s (%s)", info.default_device(), info.default_device_reason()));
  line("methods", MethodNames(info));
  line("patterns", absl::StrJoin(info.patterns(), ", "));
  line("weights", DTypeNames(info.weight_dtypes()));
  line("Grams", DTypeNames(info.gram_dtypes()));
  line("workers", std::to_string(info.workers()));
  line("jobs", absl::StrFormat("%d running, %d queued (at most %d)", info.running_jobs(),
                               info.queued_jobs(), info.max_queued_jobs()));
  line("tensor memory",
       absl::StrFormat("%s of %s used, a tensor at most %s",
                       FormatBytes(static_cast<double>(info.host_memory_used_bytes())),
                       FormatBytes(static_cast<double>(info.host_memory_bytes())),
                       FormatBytes(static_cast<double>(info.max_tensor_bytes()))));
  for (const v1::Setting& setting : info.settings()) {
    line(&setting == &info.settings(0) ? "settings" : "",
         absl::StrFormat("%s = %s (%s)", setting.name(), setting.value(), SourceName(setting)));
  }
}

}  // namespace

absl::Status Run(const StatusOptions& options, const Console& console) {
  ProgressDisplay display(console, absl::Now);
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  SPARSEFW_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(options.job));
  console.out << (options.common.json ? JsonText(StatusJson(job)) : StatusText(job));
  return absl::OkStatus();
}

absl::Status Run(const WatchOptions& options, const Console& console) {
  ProgressDisplay display(console, absl::Now, options.common.quiet);
  const Interrupt interrupt(LeaveRunning(options.job, display));
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  const auto job = Follow(*client, options.job, display);
  if (!job.ok()) return job.status();
  PrintResult(*job, options.common.json, {}, console);
  return JobOutcome(*job);
}

absl::Status Run(const FetchOptions& options, const Console& console) {
  IgnoreClosedPipes();
  const OutputOptions& output = options.output;
  SPARSEFW_RETURN_IF_ERROR(CheckWritable("--out", output.out, output.overwrite));
  if (!output.out_weights.empty()) {
    SPARSEFW_RETURN_IF_ERROR(CheckWritable("--out-weights", output.out_weights, output.overwrite));
  }
  ProgressDisplay display(console, absl::Now, options.common.quiet);
  const Interrupt interrupt(LeaveRunning(options.job, display));
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  SPARSEFW_ASSIGN_OR_RETURN(const v1::Job known, client->GetJob(options.job));
  if (!output.out_weights.empty() && !known.spec().return_pruned_weight()) {
    return UsageError(
        absl::StrFormat("--out-weights: %s was submitted without it, so the server "
                        "has no pruned weight",
                        options.job));
  }
  const auto job = Follow(*client, options.job, display);
  if (!job.ok()) return job.status();
  const absl::Status outcome = JobOutcome(*job);
  const OutputOptions there = OutputsOf(*job, output);
  const absl::Status written =
      HasMask(*job) ? WriteOutputs(*client, *job, there, display) : absl::OkStatus();
  // A job that failed ends the program with its own error.
  if (outcome.ok()) SPARSEFW_RETURN_IF_ERROR(written);
  if (!written.ok()) display.Note(std::string(written.message()));
  if (outcome.ok()) NoteWeightsWithoutFile(*job, output, display);
  if (!output.keep_tensors) DeleteInputs(*client, *job, display);
  PrintResult(*job, options.common.json, there, console);
  return outcome;
}

absl::Status Run(const CancelOptions& options, const Console& console) {
  ProgressDisplay display(console, absl::Now);
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  SPARSEFW_ASSIGN_OR_RETURN(const v1::Job job, client->CancelJob(options.job));
  const std::string more = client::IsTerminal(job.state()) ? "" : ", asked to stop";
  console.out << (options.common.json ? JsonText(StatusJson(job)) : FormatState(job) + more + "\n");
  return absl::OkStatus();
}

absl::Status Run(const DeleteOptions& options, const Console& console) {
  ProgressDisplay display(console, absl::Now);
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  const absl::StatusOr<v1::Job> job = client->GetJob(options.job);
  // A damaged job cannot be read, but is deleted as any other.
  if (!job.ok() && !HasReason(job.status(), "JOB_DAMAGED")) return job.status();
  SPARSEFW_RETURN_IF_ERROR(client->DeleteJob(options.job));
  if (job.ok()) {
    DeleteInputs(*client, *job, display);
  } else {
    display.Note("sparsefw-cli: the job was damaged: its inputs are not known, and stay");
  }
  console.out << (options.common.json ? JsonText(Json{{"deleted", options.job}})
                                      : client::Printable(options.job) + " deleted\n");
  return absl::OkStatus();
}

absl::Status Run(const ListOptions& options, const Console& console) {
  ProgressDisplay display(console, absl::Now);
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  SPARSEFW_ASSIGN_OR_RETURN(
      const std::vector<v1::Job> jobs,
      client->ListJobs(client::ListJobsOptions{options.states, options.labels, options.limit}));
  if (options.common.json) {
    Json list = Json::array();
    for (const v1::Job& job : jobs) list.push_back(StatusJson(job));
    console.out << JsonText(Json{{"jobs", list}});
    return absl::OkStatus();
  }
  if (jobs.empty()) {
    const bool any = options.states.empty() && options.labels.empty();
    display.Note(any ? "sparsefw-cli: there are no jobs" : "sparsefw-cli: no job matches");
    return absl::OkStatus();
  }
  console.out << ListText(jobs, absl::Now());
  return absl::OkStatus();
}

absl::Status Run(const InfoOptions& options, const Console& console) {
  ProgressDisplay display(console, absl::Now);
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  SPARSEFW_ASSIGN_OR_RETURN(const v1::ServerInfo info, client->GetServerInfo());
  if (options.common.json) {
    console.out << JsonText(InfoJson(info));
  } else {
    PrintInfo(info, client->address(), console.out);
  }
  return absl::OkStatus();
}

absl::Status Run(const HealthOptions& options, const Console& console) {
  client::ClientOptions connection;
  SPARSEFW_RETURN_IF_ERROR(AddCredentials(options.common, &connection));
  connection.traceparent = options.common.traceparent;
  connection.connect_timeout = options.common.timeout;
  SPARSEFW_RETURN_IF_ERROR(
      MarkRefusedOptions(client::CheckHealth(options.common.server, std::move(connection))));
  console.out << (options.common.json ? JsonText(Json{{"status", "SERVING"}}) : "SERVING\n");
  return absl::OkStatus();
}

absl::Status Run(const PrintText& text, const Console& console) {
  console.out << text.text;
  return absl::OkStatus();
}

absl::Status RunCommand(const Command& command, const Console& console) {
  return std::visit(
      [&](const auto& options) -> absl::Status {
        absl::Status status = Run(options, console);
        if constexpr (requires { options.common; }) {
          return WithTrace(WithHint(status, options.common), options.common.traceparent);
        } else {
          return status;
        }
      },
      command);
}

}  // namespace sparsefw::cli
