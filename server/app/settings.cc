#include "server/app/settings.h"

#include <algorithm>
#include <array>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"

namespace sparsefw::server {
namespace {

constexpr std::array<std::string_view, 34> kForClients = {
    // Devices, threads, switches.
    "device", "io-threads", "job-threads", "store", "streams-per-device", "workers",
    "discard-unmatched", "insecure", "insecure-metrics", "log-format", "log-level",
    // Limits.
    "connection-memory", "device-memory", "disk-budget", "host-memory", "max-attempts",
    "max-connections", "max-job-bytes", "max-peer-connections", "max-queued-jobs",
    "max-tensor-bytes", "max-tensors", "peer-memory", "solve-memory", "staging-memory",
    // Times.
    "checkpoint-period", "drain-grace", "fetch-grace", "gc-interval", "gpu-metrics-period",
    "max-result-ttl", "starvation-limit", "tensor-ttl", "upload-idle-ttl"};
constexpr std::array<std::string_view, 9> kForOperators = {
    "listen",   "metrics-listen", "spool-dir", "state-dir", "tenants",
    "tls-cert", "tls-client-ca",  "tls-key",   "tokens"};

bool IsGiven(const std::string& flag, const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [&flag](std::string_view argument) {
    if (!argument.starts_with("--" + flag)) return false;
    const std::string_view rest = argument.substr(2 + flag.size());
    return rest.empty() || rest.front() == '=';
  });
}

// "default" of SOURCE_DEFAULT.
std::string NameOf(v1::Setting::Source source) {
  constexpr size_t kPrefix = std::string_view("SOURCE_").size();
  return absl::AsciiStrToLower(v1::Setting::Source_Name(source).substr(kPrefix));
}

// The last of the values given for an option counts.
std::string ValueOf(const CLI::Option& option) {
  if (option.count() == 0) {
    const bool is_flag = option.get_expected_max() == 0;
    return is_flag ? "false" : option.get_default_str();
  }
  return option.reduced_results().back();
}

}  // namespace

bool IsQuestion(std::string_view flag) { return flag == "help" || flag == "version"; }

Audience AudienceOf(std::string_view flag) {
  const auto has = [flag](const auto& names) {
    return std::find(names.begin(), names.end(), flag) != names.end();
  };
  if (has(kForClients)) return Audience::kEveryClient;
  return has(kForOperators) ? Audience::kOperator : Audience::kUndecided;
}

std::vector<v1::Setting> SettingsOf(
    const CLI::App& app, const std::vector<std::string>& arguments,
    const std::function<std::string(const CLI::Option&)>& environment) {
  std::vector<v1::Setting> settings;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (option->get_lnames().empty() || IsQuestion(name) || name == "config") continue;
    v1::Setting& setting = settings.emplace_back();
    setting.set_name(name);
    setting.set_value(ValueOf(*option));
    setting.set_source(v1::Setting::SOURCE_DEFAULT);
    if (IsGiven(name, arguments)) {
      setting.set_source(v1::Setting::SOURCE_FLAG);
    } else if (!environment(*option).empty()) {
      setting.set_source(v1::Setting::SOURCE_ENVIRONMENT);
    } else if (option->count() > 0) {
      setting.set_source(v1::Setting::SOURCE_FILE);
    }
  }
  return settings;
}

std::vector<v1::Setting> SettingsForClients(const std::vector<v1::Setting>& settings) {
  std::vector<v1::Setting> shown;
  for (const v1::Setting& setting : settings) {
    if (AudienceOf(setting.name()) == Audience::kEveryClient) shown.push_back(setting);
  }
  return shown;
}

void LogSettings(const std::vector<v1::Setting>& settings, Logger* logger) {
  for (const v1::Setting& setting : settings) {
    logger->Log(LogLevel::kInfo, "setting",
                {{"name", setting.name()},
                 {"value", setting.value()},
                 {"source", NameOf(setting.source())}});
  }
}

}  // namespace sparsefw::server
