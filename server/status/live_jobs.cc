#include "server/status/live_jobs.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_format.h"
#include "server/metrics/labels.h"
#include "sparsefw/pattern.h"
#include "sparsefw/solver.h"

namespace sparsefw::server {
namespace {

// Keys of the program's own notes, such as which inputs are deleted with the job.
constexpr std::string_view kCliPrefix = "sparsefw-cli.";

std::optional<double> LossShare(const JobResult& result) {
  const SolveSummary& solve = result.solve;
  double full = solve.full_loss;
  double loss = result.weights_updated ? solve.reconstructed_loss : solve.final_loss;
  if (solve.unshrunk.has_value()) {
    full = solve.unshrunk->full;
    loss = solve.unshrunk->result;
  }
  return full > 0 ? std::optional(loss / full) : std::nullopt;
}

std::optional<double> Certificate(const SolveSummary& solve) {
  if (!(solve.lower_bound > 0) || !(solve.final_loss > 0)) return std::nullopt;
  return solve.lower_bound / solve.final_loss;
}

}  // namespace

ShownLabels ShowLabels(const std::map<std::string, std::string>& labels) {
  ShownLabels shown;
  size_t room = kShownLabelBytes;
  for (const auto& [key, value] : labels) {
    if (key.starts_with(kCliPrefix)) continue;
    const size_t bytes = key.size() + value.size();
    if (bytes > room) {
      ++shown.left_out;
      continue;
    }
    room -= bytes;
    shown.labels.emplace(key, value);
  }
  return shown;
}

JobEnd EndOf(const Job& job) {
  JobEnd end;
  end.state = job.state;
  end.reason = EndReasonLabel(job);
  end.time = job.end_time;
  if (job.start_time > absl::InfinitePast()) end.ran = job.end_time - job.start_time;
  if (job.result.has_value()) {
    end.loss = LossShare(*job.result);
    end.certificate = Certificate(job.result->solve);
  }
  return end;
}

void LiveJobs::Accepted(const Job& job) {
  LiveJob live;
  live.name = job.name;
  live.labels = ShowLabels(job.spec.labels);
  live.method = job.spec.sweep.empty() ? std::string(NameOf(job.spec.options.method))
                                       : absl::StrFormat("sweep of %d", job.spec.sweep.size());
  live.pattern = ToString(job.spec.pattern);
  live.rows = job.rows;
  live.cols = job.cols;
  live.create_time = job.create_time;
  MutexLock lock(mutex_);
  live.number = next_++;
  jobs_[job.name].job = std::move(live);
}

void LiveJobs::Started(const Job& job) {
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job.name);
  if (found == jobs_.end()) return;
  found->second.running = true;
  found->second.job.start_time = job.start_time;
  found->second.job.attempts = job.attempts;
}

void LiveJobs::Progressed(const std::string& job, const ProgressReport& report) {
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  Entry& entry = found->second;
  std::vector<TracePoint>& trace = entry.job.trace;
  // The next point of a sweep is another solve.
  if (report.sweep_point != entry.job.progress.sweep_point) {
    trace.clear();
    entry.stride = 1;
    entry.reports = 0;
  }
  entry.job.progress = report;
  if (entry.reports++ % entry.stride != 0) return;
  if (trace.size() >= kTracePoints) {
    size_t kept = 0;
    for (size_t i = 0; i < trace.size(); i += 2) trace[kept++] = trace[i];
    trace.resize(kept);
    entry.stride *= 2;
  }
  trace.push_back({report.iteration, report.relaxed_loss, report.best_loss});
}

void LiveJobs::Ended(const Job& job) {
  JobEnd end = EndOf(job);
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job.name);
  if (found == jobs_.end()) return;
  LiveJob& live = found->second.job;
  live.progress = {};
  live.trace = {};
  ended_.push_front({std::move(live), std::move(end)});
  if (ended_.size() > kEndedKept) ended_.pop_back();
  jobs_.erase(found);
}

void LiveJobs::Gone(const Job& job) {
  MutexLock lock(mutex_);
  jobs_.erase(job.name);
}

LiveJobs::View LiveJobs::Look(size_t limit) const {
  View view;
  {
    MutexLock lock(mutex_);
    std::vector<const LiveJob*> queued;  // thousands, of which few are shown
    for (const auto& [name, entry] : jobs_) {
      if (entry.running) {
        view.running.push_back(entry.job);
      } else {
        queued.push_back(&entry.job);
      }
    }
    view.queue_length = std::ssize(queued);
    const auto shown = queued.begin() + std::min(std::ssize(queued), static_cast<ptrdiff_t>(limit));
    std::ranges::partial_sort(queued, shown, {}, &LiveJob::number);
    for (auto job = queued.begin(); job != shown; ++job) view.queued.push_back(**job);
    view.ended.assign(ended_.begin(), ended_.end());
  }
  std::ranges::sort(view.running, {}, &LiveJob::start_time);
  return view;
}

}  // namespace sparsefw::server
