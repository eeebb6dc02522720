#include "client/cpp/cli/output/job_list.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/output/format.h"
#include "client/cpp/cli/output/result.h"
#include "client/cpp/cli/output/sweep_result.h"
#include "sparsefw/client/printable.h"

namespace sparsefw::cli {
namespace {

constexpr size_t kColumns = 8;
using Line = std::array<std::string, kColumns>;

std::string Progress(const v1::Job& job) {
  std::string text = "-";
  if (job.state() == v1::JOB_STATE_QUEUED) text = absl::StrFormat("%d ahead", job.queue_position());
  if (job.state() == v1::JOB_STATE_RUNNING && job.has_progress() &&
      job.progress().iterations_total() > 0) {
    text = absl::StrFormat("%d/%d", job.progress().iteration(), job.progress().iterations_total());
  }
  if (job.has_result()) {
    if (const auto loss = LossShare(job.result().losses())) {
      text = absl::StrFormat("%.3f %%", 100 * *loss);
    }
  }
  return text + FormatAttempt(job);
}

std::string Labels(const v1::Job& job) {
  std::string text;
  // In the order of their keys.
  const std::map<std::string, std::string> labels(job.spec().labels().begin(),
                                                  job.spec().labels().end());
  for (const auto& [key, value] : labels) {
    if (absl::StartsWith(key, "sparsefw-cli.")) continue;
    text += absl::StrFormat("%s%s=%s", text.empty() ? "" : " ", key, value);
  }
  return client::Printable(text);
}

Line LineOf(const v1::Job& job, absl::Time now) {
  const v1::SweepPoint point = ResultPoint(job);
  return {client::Printable(job.name()),
          JobStateName(job.state()),
          MethodName(point.method()),
          PatternName(point.pattern()),
          job.shape_size() == 2 ? absl::StrFormat("%dx%d", job.shape(0), job.shape(1)) : "-",
          Progress(job),
          FormatSpan(now - FromProto(job.create_time())) + " ago",
          Labels(job)};
}

}  // namespace

std::string ListText(const std::vector<v1::Job>& jobs, absl::Time now) {
  std::vector<Line> lines = {
      {"job", "state", "method", "pattern", "shape", "loss", "submitted", "labels"}};
  for (const v1::Job& job : jobs) lines.push_back(LineOf(job, now));
  std::array<size_t, kColumns> widths{};
  for (const Line& line : lines) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row;
    for (size_t i = 0; i < kColumns; ++i) {
      row += absl::StrFormat("%-*s  ", static_cast<int>(widths[i]), line[i]);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace sparsefw::cli
