#include "client/cpp/cli/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/format.h"

namespace sparsefw::cli {
namespace {

constexpr absl::Duration kRepaint = absl::Milliseconds(100);

}  // namespace

ProgressDisplay::ProgressDisplay(const Console& console, std::function<absl::Time()> now)
    : console_(console), now_(std::move(now)), start_(now_()) {}

ProgressDisplay::~ProgressDisplay() { ClearLive(); }

void ProgressDisplay::ClearLive() {
  if (std::exchange(live_, false)) console_.err << "\r\033[K" << std::flush;
}

void ProgressDisplay::Live(std::string_view line, bool force) {
  const absl::Time now = now_();
  if (!force && now - last_live_ < kRepaint) return;
  last_live_ = now;
  live_ = true;
  // A line that wraps could not be painted over.
  const auto columns = static_cast<size_t>(std::max(console_.columns - 1, 20));
  console_.err << "\r\033[K" << line.substr(0, columns) << std::flush;
}

void ProgressDisplay::Note(std::string_view line) {
  ClearLive();
  console_.err << line << '\n' << std::flush;
}

void ProgressDisplay::StartTransfer(std::string_view verb, std::string_view what) {
  verb_ = verb;
  what_ = what;
  start_ = now_();
  transfer_ = {};
}

void ProgressDisplay::OnTransfer(const client::TransferProgress& progress) {
  transfer_ = progress;
  if (!console_.err_is_terminal) return;
  Live(absl::StrFormat("%s %s", verb_, FormatTransfer(what_, progress, now_() - start_)),
       progress.done_bytes == progress.total_bytes);
}

void ProgressDisplay::EndTransfer() {
  const absl::Duration elapsed = now_() - start_;
  const auto bytes = static_cast<double>(transfer_.total_bytes);
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-6);
  Note(absl::StrFormat("%s %s  %s in %s  %s/s", verb_, what_, FormatBytes(bytes),
                       FormatSpan(elapsed), FormatBytes(bytes / seconds)));
}

void ProgressDisplay::OnJob(const v1::JobEvent& event) {
  const v1::Job& job = event.job();
  if (std::string state = FormatState(job); state != state_) {
    state_ = std::move(state);
    Note(state_);
  }
  if (job.state() != v1::RUNNING || !job.has_progress()) return;
  const v1::Progress& progress = job.progress();
  if (progress.iteration() == std::exchange(iteration_, progress.iteration())) return;
  if (console_.err_is_terminal) {
    Live(FormatProgress(progress), progress.iteration() == progress.iterations_total());
  } else {
    Note(FormatProgress(progress));
  }
}

}  // namespace sparsefw::cli
