#include "client/cpp/cli/output/time_left.h"

#include <algorithm>
#include <vector>

#include "client/cpp/cli/flags/names.h"

namespace sparsefw::cli {
namespace {

constexpr size_t kReports = 10;

int64_t Points(const v1::Job& job) { return std::max(job.spec().sweep().points_size(), 1); }

// From the server's times alone: its clock may differ from this machine's.
std::optional<absl::Duration> ToDeadline(const v1::Job& job) {
  if (!job.spec().has_deadline() || Points(job) > 1) return std::nullopt;
  const absl::Duration queued = FromProto(job.start_time()) - FromProto(job.create_time());
  const absl::Duration left =
      FromProto(job.spec().deadline()) - queued - FromProto(job.progress().elapsed());
  return std::max(left, absl::ZeroDuration());
}

}  // namespace

std::optional<double> ShareDone(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.iterations_total() <= 0) return std::nullopt;
  const double of_point =
      static_cast<double>(progress.iteration()) / static_cast<double>(progress.iterations_total());
  return (progress.sweep_point() + of_point) / static_cast<double>(Points(job));
}

void TimeLeft::Add(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.sweep_point() != point_ ||
      (!reports_.empty() && progress.iteration() < reports_.back().iteration)) {
    reports_.clear();
  }
  point_ = progress.sweep_point();
  reports_.push_back({progress.iteration(), FromProto(progress.elapsed())});
  if (reports_.size() > kReports) reports_.pop_front();

  std::vector<absl::Duration> steps;
  for (size_t i = 1; i < reports_.size(); ++i) {
    const int64_t taken = reports_[i].iteration - reports_[i - 1].iteration;
    if (taken > 0) steps.push_back((reports_[i].elapsed - reports_[i - 1].elapsed) / taken);
  }
  // The first report: its time includes loading.
  if (steps.empty() && progress.iteration() > 0) {
    steps.push_back(FromProto(progress.elapsed()) / progress.iteration());
  }
  estimate_.reset();
  if (steps.empty() || progress.iterations_total() <= 0) return;
  const auto middle = steps.begin() + static_cast<ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  const int64_t left = (Points(job) - point_) * progress.iterations_total() - progress.iteration();
  estimate_ = std::max(*middle, absl::ZeroDuration()) * std::max<int64_t>(left, 0);
  if (const auto deadline = ToDeadline(job)) estimate_ = std::min(*estimate_, *deadline);
}

}  // namespace sparsefw::cli
