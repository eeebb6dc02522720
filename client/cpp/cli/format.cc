#include "client/cpp/cli/format.h"

#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/names.h"

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

std::string FormatTransfer(std::string_view what, const client::TransferProgress& progress,
                           absl::Duration elapsed) {
  const auto done = static_cast<double>(progress.done_bytes);
  const auto total = static_cast<double>(progress.total_bytes);
  std::string text =
      absl::StrFormat("%s  %s of %s (%s)", what, FormatBytes(done), FormatBytes(total),
                      FormatPercent(total > 0 ? done / total : 1));
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds > 0 && done > 0) text += absl::StrFormat("  %s/s", FormatBytes(done / seconds));
  return text;
}

std::string FormatProgress(const v1::Progress& progress) {
  std::string text =
      absl::StrFormat("iteration %d/%d  relaxed %s  gap %s  best %s", progress.iteration(),
                      progress.iterations_total(), FormatLoss(progress.relaxed_loss()),
                      FormatLoss(progress.gap()), FormatLoss(progress.best_loss()));
  if (progress.has_remaining_estimate()) {
    text += absl::StrFormat("  %s left", FormatSpan(FromProto(progress.remaining_estimate())));
  }
  return text;
}

std::string FormatState(const v1::Job& job) {
  std::string state = JobStateName(job.state());
  absl::AsciiStrToLower(&state);
  std::string text = absl::StrFormat("%s %s", job.name(), state);
  if (job.state() == v1::QUEUED && job.queue_position() > 0) {
    text += absl::StrFormat(", %d ahead", job.queue_position());
  }
  return text;
}

}  // namespace sparsefw::cli
