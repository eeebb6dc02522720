#include "client/cpp/cli/output/format.h"

#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/flags/names.h"
#include "sparsefw/client/printable.h"

namespace sparsefw::cli {

std::string FormatBytes(double bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrFormat("%.0f B", bytes);
  size_t unit = 0;
  double value = bytes / 1024;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatSpan(absl::Duration span) {
  const double seconds = absl::ToDoubleSeconds(span);
  if (seconds < 1) return absl::StrFormat("%.2f s", std::max(seconds, 0.0));
  if (seconds < 99.95) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole / 60 % 60);
}

std::string FormatLoss(double loss) { return absl::StrFormat("%.5g", loss); }

std::string FormatPercent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

std::string FormatTimeLeft(absl::Duration left) {
  const auto seconds = static_cast<int64_t>(std::ceil(absl::ToDoubleSeconds(left)));
  if (seconds < 100) return absl::StrFormat("%d s left", seconds);
  return FormatSpan(absl::Seconds(seconds)) + " left";
}

std::optional<double> ReductionSoFar(const v1::Progress& progress) {
  if (!(progress.warm_start_loss() > 0)) return std::nullopt;
  return 1 - progress.best_loss() / progress.warm_start_loss();
}

std::string FormatConvergence(const v1::Progress& progress) {
  if (!(progress.relaxed_loss() > 0)) return "";
  return absl::StrFormat("converged to %.2g %%", 100 * progress.gap() / progress.relaxed_loss());
}

std::string FormatProgress(const v1::Job& job, const std::optional<absl::Duration>& left) {
  const v1::Progress& progress = job.progress();
  std::string text;
  if (const int points = job.spec().sweep().points_size(); points > 0) {
    text += absl::StrFormat("point %d/%d  ", progress.sweep_point() + 1, points);
  }
  if (progress.iterations_total() > 0) {
    text += absl::StrFormat("iteration %d/%d  relaxed %s  ", progress.iteration(),
                            progress.iterations_total(), FormatLoss(progress.relaxed_loss()));
    const std::string convergence = FormatConvergence(progress);
    if (!convergence.empty()) text += convergence + "  ";
  }
  text += "best " + FormatLoss(progress.best_loss());
  if (const auto reduction = ReductionSoFar(progress)) {
    text += absl::StrFormat(" (%s below the warm start)", FormatPercent(*reduction));
  }
  if (progress.swaps() > 0) text += absl::StrFormat("  %d swaps", progress.swaps());
  if (left) text += "  " + FormatTimeLeft(*left);
  return text;
}

std::string FormatAttempt(const v1::Job& job) {
  return job.attempts() > 1 ? absl::StrFormat(", attempt %d", job.attempts()) : "";
}

std::string FormatState(const v1::Job& job) {
  std::string state = JobStateName(job.state());
  absl::AsciiStrToLower(&state);
  std::string text = absl::StrFormat("%s %s", client::Printable(job.name()), state);
  if (job.state() == v1::JOB_STATE_QUEUED && job.queue_position() > 0) {
    text += absl::StrFormat(", %d ahead", job.queue_position());
  }
  return text + FormatAttempt(job);
}

}  // namespace sparsefw::cli
