#include "client/cpp/cli/output/progress.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/output/format.h"
#include "sparsefw/client/printable.h"

namespace sparsefw::cli {
namespace {

constexpr absl::Duration kRepaint = absl::Milliseconds(100);
// Without a terminal: the least time between reports, and between lines that only say that a job
// still runs. Both grow with the time that the job has run, so that hours make no long log.
constexpr absl::Duration kReportEvery = absl::Seconds(1);
constexpr absl::Duration kSignEvery = absl::Seconds(10);
constexpr int kShareOfRun = 20;
// A wait shorter than this needs no line.
constexpr absl::Duration kWorthTelling = absl::Milliseconds(500);

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
  if (progress.sweep_point() >= 0 && progress.sweep_point() < sweep.points_size()) {
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

// What the line says before the first report, or throughout where a method makes no reports.
std::string Work(const v1::Job& job) {
  const v1::JobSpec& spec = job.spec();
  std::string work = "running";
  if (spec.sweep().points_size() > 0) return work + " a sweep";
  if (spec.method() != v1::METHOD_UNSPECIFIED) work += " " + MethodName(spec.method());
  if (spec.refine().joint()) work += ", then the joint search";
  return work;
}

std::string SoFar(absl::Duration elapsed) { return FormatSpan(elapsed) + " so far"; }

ProgressLine JobLine(const v1::Job& job, const std::optional<absl::Duration>& left,
                     absl::Duration elapsed) {
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
    line.fields.push_back({SoFar(elapsed), 3});
    return line;
  }
  if (const std::string convergence = FormatConvergence(progress); !convergence.empty()) {
    line.fields.push_back({convergence, 5});
  }
  line.fields.push_back({left ? FormatTimeLeft(*left) : SoFar(elapsed), 1});
  return line;
}

}  // namespace

ProgressDisplay::ProgressDisplay(const Console& console, std::function<absl::Time()> now,
                                 bool quiet)
    : console_(console), now_(std::move(now)), quiet_(quiet), start_(now_()) {}

ProgressDisplay::~ProgressDisplay() {
  MutexLock lock(mutex_);
  if (!pending_.empty()) PrintLine(pending_);
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
  if (!pending_.empty()) PrintLine(std::exchange(pending_, ""));
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
  job_ = event.job();
  OnState(job_);
  if (job_.state() != v1::JOB_STATE_RUNNING) return;
  if (running_since_ == absl::InfinitePast()) running_since_ = report_time_ = line_time_ = now_();
  if (!job_.has_progress()) return;
  const v1::Progress& progress = job_.progress();
  std::string report =
      absl::StrFormat("%d/%d/%d", progress.sweep_point(), progress.iteration(), progress.swaps());
  const bool is_new = report != report_;
  report_ = std::move(report);
  if (is_new) {
    time_left_.Add(job_);
    report_time_ = now_();
  }
  if (console_.err_is_terminal) {
    PaintJob(is_new && progress.iteration() == progress.iterations_total());
  } else if (is_new) {
    Report(FormatProgress(job_, time_left_.estimate()));
  }
}

absl::Duration ProgressDisplay::Elapsed() const {
  const absl::Duration here = now_() - running_since_;
  if (!job_.has_progress()) return here;
  // The server knows more of a job that ran before it was watched.
  return std::max(here, FromProto(job_.progress().elapsed()) + (now_() - report_time_));
}

void ProgressDisplay::PaintJob(bool force) {
  if (!job_.has_progress()) {
    if (Elapsed() < kWorthTelling) return;
    return Live({Work(job_), std::nullopt, {{SoFar(Elapsed()), 1}}}, force);
  }
  std::optional<absl::Duration> left = time_left_.estimate();
  // Between reports the time goes on.
  if (left) left = std::max(*left - (now_() - report_time_), absl::ZeroDuration());
  Live(JobLine(job_, left, Elapsed()), force);
}

void ProgressDisplay::Report(std::string line) {
  const absl::Time now = now_();
  // The first report is worth a line at any time.
  const bool first = reports_++ == 0;
  if (!first && now - line_time_ < std::max(kReportEvery, Elapsed() / kShareOfRun)) {
    pending_ = std::move(line);
    return;
  }
  pending_.clear();
  line_time_ = now;
  PrintLine(line);
}

void ProgressDisplay::Tick() {
  MutexLock lock(mutex_);
  if (quiet_ || job_.state() != v1::JOB_STATE_RUNNING) return;
  if (console_.err_is_terminal) return PaintJob(/*force=*/false);
  if (now_() - line_time_ < std::max(kSignEvery, Elapsed() / kShareOfRun)) return;
  line_time_ = now_();
  PrintLine(absl::StrFormat("%s  %s", pending_.empty() ? Work(job_) : std::exchange(pending_, ""),
                            SoFar(Elapsed())));
}

Ticker::Ticker(ProgressDisplay& display)
    : thread_([this, &display] {
        MutexLock lock(mutex_);
        while (!ended_) {
          // A wake-up without cause only paints once more.
          changed_.WaitFor(mutex_, std::chrono::milliseconds(250));
          if (!ended_) display.Tick();
        }
      }) {}

Ticker::~Ticker() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

}  // namespace sparsefw::cli
