#include "server/app/config.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/app/config_file.h"
#include "server/identity/byte_size.h"
#include "server/net/listen_sockets.h"

namespace sparsefw::server {
namespace {

// Each stream holds one message beyond the budget; a budget of fewer than a few
// messages would make uploads slow.
constexpr int64_t kMinStagingBytes = int64_t{4} << 20;
// Less would not hold the messages of a few uploads.
constexpr int64_t kMinPeerBytes = int64_t{64} << 20;
// The sensors are not updated more often.
constexpr absl::Duration kMinGpuMetricsPeriod = absl::Milliseconds(100);

std::string EnvironmentName(const std::string& flag) {
  return "SPARSEFW_" + absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}}));
}

std::string DefaultStateDir(const Environment& getenv) {
  if (const std::string xdg = getenv("XDG_STATE_HOME").value_or(""); !xdg.empty()) {
    return xdg + "/sparsefw-server";
  }
  if (const std::string home = getenv("HOME").value_or(""); !home.empty()) {
    return home + "/.local/state/sparsefw-server";
  }
  return "/var/lib/sparsefw-server";
}

// `read` takes the text, or says false: it must be what `rule` says.
CLI::Option* AddText(CLI::App& app, const std::string& flag, const std::string& type,
                     const std::string& rule, const std::function<bool(const std::string&)>& read,
                     const std::string& help) {
  return app
      .add_option_function<std::string>(
          flag,
          [flag, rule, read](const std::string& text) {
            if (!read(text)) throw CLI::ValidationError(flag, "must be " + rule + "; got " + text);
          },
          help)
      ->type_name(type);
}

CLI::Option* AddBytes(CLI::App& app, const std::string& flag, int64_t* value, int64_t at_least,
                      const std::string& help) {
  const auto read = [value, at_least](const std::string& text) {
    const std::optional<int64_t> bytes = ParseBytes(text);
    if (!bytes.has_value() || *bytes < at_least) return false;
    *value = *bytes;
    return true;
  };
  const std::string rule =
      absl::StrFormat("a size of at least %d bytes, like 512MiB or 8GiB", at_least);
  return AddText(app, flag, "SIZE", rule, read, help)->default_str(FormatBytes(*value));
}

// "80%" or "40GiB".
void AddBytesOrShare(CLI::App& app, const std::string& flag, int64_t* bytes, double* share,
                     const std::string& help) {
  const auto read = [bytes, share](const std::string& text) {
    int percent = 0;
    if (text.ends_with('%') && absl::SimpleAtoi(text.substr(0, text.size() - 1), &percent) &&
        percent >= 1 && percent <= 100) {
      *share = percent / 100.0;
      *bytes = 0;
      return true;
    }
    const std::optional<int64_t> size = ParseBytes(text);
    *bytes = size.value_or(*bytes);
    return size.has_value();
  };
  AddText(app, flag, "SIZE|PERCENT", "a size like 40GiB or a share from 1% to 100%", read, help)
      ->default_str(absl::StrFormat("%.0f%%", *share * 100));
}

CLI::Option* AddDuration(CLI::App& app, const std::string& flag, absl::Duration* value,
                         const std::string& help) {
  const auto read = [value](const std::string& text) {
    absl::Duration duration;
    if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
        duration > absl::Hours(24 * 365)) {
      return false;
    }
    *value = duration;
    return true;
  };
  return AddText(app, flag, "DURATION", "a duration like 30s or 5m", read, help)
      ->default_str(absl::FormatDuration(*value));
}

// The rules beyond those of AddDuration.
std::string CheckGpuMetricsPeriod(const std::string& text) {
  absl::Duration period;
  if (!absl::ParseDuration(text, &period) || period == absl::ZeroDuration() ||
      period >= kMinGpuMetricsPeriod || period < absl::ZeroDuration()) {
    return "";
  }
  return absl::StrFormat("must be 0 (off) or at least %s; got %s",
                         absl::FormatDuration(kMinGpuMetricsPeriod), text);
}

std::string CheckAboveZero(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration > absl::ZeroDuration()) return "";
  return "must be above 0; got " + text;
}

std::string CheckHostPort(const std::string& text) {
  return ParseHostPort(text) ? "" : "must be HOST:PORT with a port in [0, 65535]; got " + text;
}

std::string CheckDevice(const std::string& text) {
  if (text == "auto" || text == "cpu" || text == "reference" || text == "cuda") return "";
  if (text.starts_with("cuda:")) return std::string(CheckDeviceList(text).message());
  return "must be auto, cpu, reference, cuda or cuda:N[,N]; got " + text;
}

std::function<std::string(const std::string&)> OneOf(std::vector<std::string> values) {
  return [values = std::move(values)](const std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return "";
    return "must be one of " + CLI::detail::join(values, ", ") + "; got " + text;
  };
}

// The type of options that CheckFileName checks.
constexpr char kFile[] = "FILE";

// An unset variable of a script must not leave a server without its tokens.
std::string CheckFileName(const std::string& text) {
  return text.empty() ? "must name a file; got an empty name" : "";
}

void AddIdentity(CLI::App& app, ServerConfig* config) {
  const auto add = [&app](const std::string& flag, std::string& value, const std::string& help) {
    app.add_option(flag, value, help)->type_name(kFile)->check(CheckFileName);
  };
  add("--tls-cert", config->tls_cert, "Certificate of the server, with its chain (PEM)");
  add("--tls-key", config->tls_key, "Its private key (PEM)");
  add("--tls-client-ca", config->tls_client_ca,
      "CA of client certificates, which clients then need (PEM)");
  add("--tokens", config->tokens, "Tokens that clients may use: lines tenant:sha256[:expiry]");
  add("--tenants", config->tenants, "Limits and weights of tenants");
  app.add_flag("--insecure", config->insecure, "Allows --listen other than loopback without TLS");
  app.add_flag("--insecure-metrics", config->insecure_metrics,
               "Allows --metrics-listen other than loopback");
  app.add_option("--max-connections", config->max_connections,
                 "Connections to the gRPC port; 0: as file descriptors allow")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--max-peer-connections", config->max_peer_connections,
                 "Connections from one address; 0: no limit")
      ->check(CLI::Range(0, 1'000'000));
  AddBytes(app, "--connection-memory", &config->connection_memory_bytes, kMinPeerBytes,
           "Memory that all connections together may take");
  AddBytes(app, "--peer-memory", &config->peer_memory_bytes, kMinPeerBytes,
           "Memory that the connections from one address may take");
}

// Empty, or the rule that the flags break together.
std::string CheckIdentity(const ServerConfig& config) {
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return "--tls-cert and --tls-key must be given together";
  }
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) {
    return "--tls-client-ca needs --tls-cert and --tls-key";
  }
  if (config.peer_memory_bytes > config.connection_memory_bytes) {
    return "--peer-memory must be at most --connection-memory";
  }
  return "";
}

void AddLimits(CLI::App& app, ServerConfig* config) {
  AddBytes(app, "--host-memory", &config->tensors.budget_bytes, 1,
           "Budget of all tensors together");
  AddBytes(app, "--disk-budget", &config->tensors.disk_budget_bytes, 1,
           "Disk for the files of all tensors and the database")
      ->default_str("what the file system has");
  AddBytes(app, "--staging-memory", &config->staging_memory_bytes, kMinStagingBytes,
           "Budget of messages between network and disk");
  AddBytes(app, "--solve-memory", &config->solve_memory_bytes, 1,
           "Working memory of all running jobs together")
      ->default_str("80% of the machine's");
  AddBytesOrShare(
      app, "--device-memory", &config->devices.memory_bytes, &config->devices.memory_share,
      "Memory of each CUDA device that jobs may use together, or share of what is free");
  app.add_option("--streams-per-device", config->devices.streams,
                 "Jobs that run at the same time on each CUDA device")
      ->check(CLI::Range(1, 64));
  AddBytes(app, "--max-tensor-bytes", &config->tensors.max_tensor_bytes, 1,
           "Size of the largest tensor");
  app.add_option("--max-tensors", config->tensors.max_tensors,
                 "Tensors and uploads, with the results of accepted jobs")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--max-queued-jobs", config->jobs.max_queued_jobs, "Jobs that may wait")
      ->check(CLI::Range(1, 10'000'000));
  AddBytes(app, "--max-job-bytes", &config->jobs.max_job_bytes, 1,
           "Records of all jobs that are kept, with room for the results of unfinished ones");
  AddDuration(app, "--max-result-ttl", &config->jobs.max_result_ttl,
              "The longest result_ttl that a job may ask for")
      ->check(CheckAboveZero);
}

void AddTimes(CLI::App& app, ServerConfig* config) {
  AddDuration(app, "--starvation-limit", &config->jobs.starvation_limit,
              "How long a job that fits waits for one before it that does not")
      ->check(CheckAboveZero);
  app.add_option(
         "--max-attempts", config->jobs.max_attempts,
         "Runs of a job in a row that may end with the server and get no further before it fails")
      ->check(CLI::Range(1, 1000));
  AddDuration(app, "--checkpoint-period", &config->checkpoint_period,
              "How often a running job writes what it needs to go on after a restart");
  AddDuration(app, "--drain-grace", &config->drain_grace,
              "How long running jobs may go on after SIGTERM");
  AddDuration(app, "--fetch-grace", &config->fetch_grace,
              "How long results may still be fetched after the last job has ended");
  AddDuration(app, "--upload-idle-ttl", &config->tensors.upload_idle_ttl,
              "When an upload that nothing was written to is dropped")
      ->check(CheckAboveZero);
  AddDuration(app, "--tensor-ttl", &config->tensors.tensor_ttl,
              "When an uploaded tensor that nobody has used is dropped; 0: never");
  AddDuration(app, "--gc-interval", &config->gc_interval,
              "How often expired jobs, tensors and uploads are dropped")
      ->check(CheckAboveZero);
  AddDuration(app, "--gpu-metrics-period", &config->gpu_metrics_period,
              "How often CUDA devices are measured through NVML; 0: never")
      ->check(CheckGpuMetricsPeriod);
}

void AddOptions(CLI::App& app, ServerConfig* config) {
  app.add_option("--listen", config->listen, "Address of the gRPC server; port 0 picks a free one")
      ->check(CheckHostPort)
      ->type_name("HOST:PORT");
  app.add_option("--metrics-listen", config->metrics_listen, "Address of the Prometheus endpoint")
      ->check(CheckHostPort)
      ->type_name("HOST:PORT");
  AddIdentity(app, config);
  app.add_option("--state-dir", config->state_dir, "Folder of everything the server keeps");
  app.add_option("--spool-dir", config->tensors.spool_dir,
                 "Folder of the tensors; <state-dir>/spool");
  app.add_flag("--discard-unmatched", config->tensors.discard_unmatched,
               "Removes files and records of tensors that do not belong together, however many");
  app.add_option("--store", config->store,
                 "sqlite: jobs and tensors survive restarts; memory: they do not")
      ->check(OneOf({"sqlite", "memory"}));
  app.add_option("--device", config->device,
                 "auto, cpu, reference, cuda, or cuda:N[,N] to use just these CUDA devices")
      ->check(CheckDevice);
  app.add_option("--workers", config->jobs.workers, "Jobs that run on the CPU at the same time")
      ->check(CLI::Range(1, 1024));
  app.add_option("--job-threads", config->job_threads,
                 "Threads of a job on the CPU; 0: the machine's cores / workers")
      ->check(CLI::Range(0, 1024));
  app.add_option("--io-threads", config->io_threads, "Threads that write and read tensors")
      ->check(CLI::Range(1, 1024));
  AddLimits(app, config);
  AddTimes(app, config);
  app.add_option("--log-level", config->log_level, "debug, info, warning or error")
      ->check(OneOf({"debug", "info", "warning", "error"}));
  app.add_option("--log-format", config->log_format, "text or json")
      ->check(OneOf({"text", "json"}));
}

// A file for another version may have keys that this one does not know.
std::string UnknownKey(const CLI::App& app, std::string_view message) {
  constexpr std::string_view kLibrary = "INI was not able to parse ";
  if (!message.starts_with(kLibrary)) return std::string(message);
  message.remove_prefix(kLibrary.size());
  return absl::StrFormat(
      "--config %s: %s is no key of version %s; the keys are the flags of --help, and what another "
      "version has must be taken out of the file",
      app.get_config_ptr()->as<std::string>(), message, SPARSEFW_VERSION);
}

// What the environment sets, as flags.
std::vector<std::string> FlagsOf(CLI::App& app, const Environment& getenv) {
  std::vector<std::string> flags;
  for (CLI::Option* option : app.get_options()) {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (option->get_lnames().empty() || IsQuestion(option->get_single_name())) continue;
    const auto value = getenv(EnvironmentName(option->get_single_name()));
    if (!value.has_value() || (value->empty() && option->get_type_name() != kFile)) continue;
    // CLI11 takes nothing behind "=" for a missing value, which CheckFileName would not see.
    const std::string flag = "--" + option->get_single_name();
    flags.push_back(value->empty() ? flag : flag + "=" + *value);
    if (value->empty()) flags.emplace_back();
  }
  return flags;
}

}  // namespace

Arguments ParseArguments(const std::vector<std::string>& arguments, const Environment& getenv) {
  ServerConfig config;
  CLI::App app("Prunes linear layers: weights and Gram matrices in over gRPC, masks out.",
               "sparsefw-server");
  app.option_defaults()->always_capture_default();
  AddOptions(app, &config);
  app.set_version_flag("--version", std::string("sparsefw-server ") + SPARSEFW_VERSION,
                       "Print the version and exit");
  app.set_config("--config", "", "File of key = value lines; the keys are the flags' names")
      ->type_name(kFile)
      ->check(CheckFileName);
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.config_formatter(ConfigFileReader());

  // CLI11 would let the file win over the environment, so the environment goes
  // in front of the arguments, where a flag given later replaces it.
  std::vector<std::string> all = FlagsOf(app, getenv);
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::reverse(all.begin(), all.end());  // as CLI11 wants it

  Arguments result;
  try {
    app.parse(std::move(all));
  } catch (const CLI::CallForHelp&) {
    result.text = app.help();
    return result;
  } catch (const CLI::CallForVersion& version) {
    result.text = absl::StrFormat("%s\n", version.what());
    return result;
  } catch (const CLI::ParseError& error) {
    result.exit_code = 2;
    const std::vector<std::string> unknown = app.remaining();
    result.text =
        unknown.empty()
            ? absl::StrFormat("sparsefw-server: %s\n", UnknownKey(app, error.what()))
            : absl::StrFormat("sparsefw-server: %s is no flag; --help lists them\n", unknown[0]);
    return result;
  }
  if (const std::string rule = CheckIdentity(config); !rule.empty()) {
    result.exit_code = 2;
    result.text = absl::StrFormat("sparsefw-server: %s\n", rule);
    return result;
  }
  if (config.state_dir.empty()) config.state_dir = DefaultStateDir(getenv);
  if (config.tensors.spool_dir.empty()) config.tensors.spool_dir = config.state_dir + "/spool";
  config.settings = SettingsOf(app, arguments, [&getenv](const CLI::Option& option) {
    return getenv(EnvironmentName(option.get_single_name())).value_or("");
  });
  for (v1::Setting& setting : config.settings) {
    if (setting.name() == "state-dir") setting.set_value(config.state_dir);
    if (setting.name() == "spool-dir") setting.set_value(config.tensors.spool_dir);
  }
  result.config = std::move(config);
  return result;
}

}  // namespace sparsefw::server
