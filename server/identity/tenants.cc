#include "server/identity/tenants.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "server/identity/byte_size.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr char kOthers[] = "*";

struct Setting {
  int line = 0;
  std::string key;
  std::string value;
};
struct Section {
  int line = 0;
  std::string name;
  std::vector<Setting> settings;
};

absl::Status Bad(std::string_view file, int line, std::string_view rule) {
  return Invalid("CONFIGURATION_INVALID", "%s:%d: %s", file, line, rule);
}

absl::Status ReadLine(std::string_view file, int number, const std::string& line,
                      std::vector<Section>* sections) {
  if (line.front() == '[') {
    if (line.back() != ']') return Bad(file, number, "a section must be [tenant]");
    std::string name(absl::StripAsciiWhitespace(line.substr(1, line.size() - 2)));
    if (name != kOthers && !IsTenantName(name)) {
      return Bad(file, number,
                 absl::StrFormat("the name of a tenant must be * or have %s", kTenantNameRule));
    }
    for (const Section& earlier : *sections) {
      if (earlier.name != name) continue;
      return Bad(
          file, number,
          absl::StrFormat("[%s] must be there once; line %d has it too", name, earlier.line));
    }
    sections->push_back({number, std::move(name), {}});
    return absl::OkStatus();
  }
  const size_t equals = line.find('=');
  if (equals == std::string::npos) {
    return Bad(file, number, "a line must be [tenant], key = value or a # comment");
  }
  if (sections->empty()) {
    return Bad(file, number, "a key must stand in a section; the first section comes later");
  }
  std::string key(absl::StripAsciiWhitespace(line.substr(0, equals)));
  std::vector<Setting>& settings = sections->back().settings;
  for (const Setting& earlier : settings) {
    if (earlier.key != key) continue;
    return Bad(file, number,
               absl::StrFormat("%s must be there once; line %d has it too", key, earlier.line));
  }
  settings.push_back(
      {number, std::move(key), std::string(absl::StripAsciiWhitespace(line.substr(equals + 1)))});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Section>> ReadSections(std::string_view text, std::string_view file) {
  std::vector<Section> sections;
  int number = 0;
  const std::vector<std::string> lines = absl::StrSplit(std::string(text), '\n');
  for (std::string line : lines) {
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty() || line[0] == '#') continue;
    SPARSEFW_RETURN_IF_ERROR(ReadLine(file, number, line, &sections));
  }
  return sections;
}

// Empty, or the rule that the value breaks.
std::string Count(const std::string& value, std::optional<int64_t>* to) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < 0) {
    return "must be a whole number of at least 0";
  }
  *to = number;
  return "";
}

std::string Bytes(const std::string& value, std::optional<int64_t>* to) {
  *to = value == "0" ? std::optional<int64_t>(0) : ParseBytes(value);
  return to->has_value() ? "" : "must be a size like 512MiB or 8GiB, or 0";
}

std::string Weight(const std::string& value, double* to) {
  constexpr double kLeast = 1e-3;
  constexpr double kMost = 1e6;
  // NaN is outside of every range.
  if (absl::SimpleAtod(value, to) && *to >= kLeast && *to <= kMost) return "";
  return absl::StrFormat("must be a number in [%g, %g]", kLeast, kMost);
}

std::string Priority(const std::string& value, int* to) {
  if (absl::SimpleAtoi(value, to) && *to >= -100 && *to <= 100) return "";
  return "must be a whole number in [-100, 100]";
}

absl::Status Apply(const Section& section, std::string_view file, TenantLimits* limits) {
  for (const auto& [line, key, value] : section.settings) {
    std::string rule;
    if (key == "max-queued-jobs") {
      rule = Count(value, &limits->max_queued_jobs);
    } else if (key == "max-running-jobs") {
      rule = Count(value, &limits->max_running_jobs);
    } else if (key == "max-tensor-bytes") {
      rule = Bytes(value, &limits->max_tensor_bytes);
    } else if (key == "max-tensors") {
      rule = Count(value, &limits->max_tensors);
    } else if (key == "max-uploads") {
      rule = Count(value, &limits->max_uploads);
    } else if (key == "max-job-bytes") {
      rule = Bytes(value, &limits->max_job_bytes);
    } else if (key == "weight") {
      rule = Weight(value, &limits->weight);
    } else if (key == "priority-max") {
      rule = Priority(value, &limits->priority_max);
    } else {
      return Bad(file, line,
                 absl::StrFormat("there is no key \"%s\"; there are max-queued-jobs, "
                                 "max-running-jobs, max-tensor-bytes, max-tensors, max-uploads, "
                                 "max-job-bytes, weight, priority-max",
                                 key));
    }
    if (!rule.empty()) {
      return Bad(file, line, absl::StrFormat("%s %s; got \"%s\"", key, rule, value));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status QuotaExceeded(Reason reason, const char* quota, int64_t limit, int64_t current,
                           bool helps, const std::string& message) {
  ReasonMetadata metadata = {{"quota", quota},
                             {"limit", absl::StrFormat("%d", limit)},
                             {"current", absl::StrFormat("%d", current)}};
  if (helps) metadata.emplace(kRetryDelayKey, kRetryDelayMs);
  return WithReason(absl::ResourceExhaustedError(message), reason, metadata);
}

bool IsTenantName(std::string_view name) {
  constexpr size_t kMaxBytes = 64;
  if (name.empty() || name.size() > kMaxBytes) return false;
  const auto alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  return alphanumeric(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
           return alphanumeric(c) || c == '.' || c == '_' || c == '@' || c == '-';
         });
}

absl::StatusOr<TenantTable> TenantTable::Parse(std::string_view text, std::string_view file) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<Section> sections, ReadSections(text, file));
  TenantTable table;
  for (const Section& section : sections) {
    if (section.name != kOthers) continue;
    table.others_.emplace();
    SPARSEFW_RETURN_IF_ERROR(Apply(section, file, &*table.others_));
  }
  for (const Section& section : sections) {
    if (section.name == kOthers) continue;
    TenantLimits limits = table.others_.value_or(TenantLimits());
    SPARSEFW_RETURN_IF_ERROR(Apply(section, file, &limits));
    table.tenants_.emplace(section.name, limits);
  }
  return table;
}

const TenantLimits* TenantTable::Find(std::string_view tenant) const {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end()) return &found->second;
  return others_.has_value() ? &*others_ : nullptr;
}

}  // namespace sparsefw::server
