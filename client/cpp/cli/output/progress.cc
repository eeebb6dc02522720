#include "client/cpp/cli/output/progress.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/output/format.h"
#include "sparsefw/client/printable.h"

namespace sparsefw::cli {
namespace {

constexpr absl::Duration kRepaint = absl::Milliseconds(100);

ProgressLine TransferLine(std::string title, const client::TransferProgress& progress,
                          absl::Duration elapsed) {
  const auto done = static_cast<double>(progress.done_bytes);
  const auto total = static_cast<double>(progress.total_bytes);
  const double share = total > 0 ? done / total : 1;
  ProgressLine line{std::move(title), share, {}};
  line.fields.push_back({absl::StrFormat("%3.0f %%", 100 * share), 0});
  line.fields.push_back({absl::StrFormat("%s of %s", FormatBytes(done), FormatBytes(total)), 4});
  const double rate = done / std::max(absl::ToDoubleSeconds(elapsed), 1e-6);
  if (done > 0 && elapsed > absl::ZeroDuration()) {
    line.fields.push_back({FormatBytes(rate) + "/s", 2});
    line.fields.push_back({FormatTimeLeft(absl::Seconds((total - done) / rate)), 1});
  }
  return line;
}

// The work after the last iteration, from the job's options: the server sends no
// report while it runs.
std::string Refinement(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.iteration() < progress.iterations_total()) return "";
  const v1::Sweep& sweep = job.spec().sweep();
  bool swaps = job.spec().refine().swaps();
  bool reconstruct = job.spec().reconstruct();
  bool joint = job.spec().refine().joint();
  if (progress.sweep_point() < sweep.points_size()) {
    const v1::SweepPoint& point = sweep.points(progress.sweep_point());
    if (point.has_swaps()) swaps = point.swaps();
    if (point.has_reconstruct()) reconstruct = point.reconstruct();
    if (point.has_joint()) joint = point.joint();
  }
  if (joint && (!swaps || progress.swaps() > 0)) return "searching mask and weights together";
  if (progress.swaps() > 0) {
    return absl::StrFormat("%d swaps%s", progress.swaps(), reconstruct ? ", reconstructing" : "");
  }
  if (swaps) return reconstruct ? "swapping, then reconstruction" : "swapping";
  return reconstruct ? "reconstructing" : "";
}

ProgressLine JobLine(const v1::Job& job, const std::optional<absl::Duration>& left) {
  const v1::Progress& progress = job.progress();
  const std::optional<double> share = ShareDone(job);
  ProgressLine line{"", share, {}};
  if (share) line.fields.push_back({absl::StrFormat("%3.0f %%", 100 * *share), 0});
  const int points = job.spec().sweep().points_size();
  if (points > 0) {
    line.fields.push_back({absl::StrFormat("point %d/%d", progress.sweep_point() + 1, points), 4});
  }
  if (progress.iterations_total() > 0) {
    line.fields.push_back(
        {absl::StrFormat("%d/%d", progress.iteration(), progress.iterations_total()), 6});
  }
  if (const auto reduction = ReductionSoFar(progress)) {
    line.fields.push_back({"loss " + FormatPercent(*reduction) + " below warm start", 2});
  }
  const std::string refinement = Refinement(job);
  if (!refinement.empty()) {
    line.fields.push_back({refinement, 1});
    return line;
  }
  if (progress.relaxed_loss() > 0) {
    line.fields.push_back(
        {absl::StrFormat("gap %.2g %%", 100 * progress.gap() / progress.relaxed_loss()), 5});
  }
  if (left) line.fields.push_back({FormatTimeLeft(*left), 1});
  return line;
}

}  // namespace

ProgressDisplay::ProgressDisplay(const Console& console, std::function<absl::Time()> now,
                                 bool quiet)
    : console_(console), now_(std::move(now)), quiet_(quiet), start_(now_()) {}

ProgressDisplay::~ProgressDisplay() {
  MutexLock lock(mutex_);
  ClearLive();
}

void ProgressDisplay::ClearLive() {
  if (std::exchange(live_, false)) console_.err << "\r\033[K" << std::flush;
}

void ProgressDisplay::Live(const ProgressLine& line, bool force) {
  const absl::Time now = now_();
  if (!force && now - last_live_ < kRepaint) return;
  last_live_ = now;
  live_ = true;
  // The last column stays free, for some terminals wrap there, and two more for
  // the "^C" of an interrupt: a wrapped line cannot be painted over.
  console_.err << "\r\033[K" << FormatLine(line, console_.columns() - 3, console_.color)
               << std::flush;
}

void ProgressDisplay::PrintLine(std::string_view line) {
  ClearLive();
  console_.err << client::Printable(line) << '\n' << std::flush;
}

void ProgressDisplay::Note(std::string_view line) {
  MutexLock lock(mutex_);
  // An interrupt has been echoed as "^C" where the cursor was.
  if (console_.err_is_terminal) live_ = true;
  PrintLine(line);
}

void ProgressDisplay::StartTransfer(std::string_view verb, std::string_view what) {
  MutexLock lock(mutex_);
  verb_ = verb;
  what_ = what;
  start_ = now_();
  transfer_ = {};
}

void ProgressDisplay::OnTransfer(const client::TransferProgress& progress) {
  MutexLock lock(mutex_);
  transfer_ = progress;
  if (quiet_ || !console_.err_is_terminal) return;
  Live(TransferLine(verb_ + " " + client::Printable(what_), progress, now_() - start_),
       progress.done_bytes == progress.total_bytes);
}

void ProgressDisplay::EndTransfer() {
  MutexLock lock(mutex_);
  if (quiet_) return;
  const absl::Duration elapsed = now_() - start_;
  const auto bytes = static_cast<double>(transfer_.total_bytes);
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-6);
  PrintLine(absl::StrFormat("%s %s  %s in %s  %s/s", verb_, what_, FormatBytes(bytes),
                            FormatSpan(elapsed), FormatBytes(bytes / seconds)));
}

void ProgressDisplay::OnState(const v1::Job& job) {
  std::string state = FormatState(job);
  if (state == state_) return;
  state_ = std::move(state);
  // A queue that moves on does not scroll.
  if (job.state() == v1::JOB_STATE_QUEUED && console_.err_is_terminal) {
    Live({state_, std::nullopt, {}}, true);
  } else {
    PrintLine(state_);
  }
}

void ProgressDisplay::OnJob(const v1::JobEvent& event) {
  MutexLock lock(mutex_);
  if (quiet_) return;
  const v1::Job& job = event.job();
  OnState(job);
  if (job.state() != v1::JOB_STATE_RUNNING || !job.has_progress()) return;
  const v1::Progress& progress = job.progress();
  std::string report =
      absl::StrFormat("%d/%d/%d", progress.sweep_point(), progress.iteration(), progress.swaps());
  const bool is_new = report != report_;
  report_ = std::move(report);
  if (is_new) {
    time_left_.Add(job);
    report_time_ = now_();
  }
  std::optional<absl::Duration> left = time_left_.estimate();
  if (console_.err_is_terminal) {
    // Between reports, heartbeats let the time go on.
    if (left) left = std::max(*left - (now_() - report_time_), absl::ZeroDuration());
    Live(JobLine(job, left), is_new && progress.iteration() == progress.iterations_total());
  } else if (is_new) {
    PrintLine(FormatProgress(job, left));
  }
}

}  // namespace sparsefw::cli
