#include "server/status/ended_job.h"

#include "server/metrics/labels.h"

namespace sparsefw::server {
namespace {

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

}  // namespace sparsefw::server
