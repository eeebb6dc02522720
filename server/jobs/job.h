// A job: its specification, state, progress and result. Plain data.
#ifndef SPARSEFW_SERVER_JOBS_JOB_H_
#define SPARSEFW_SERVER_JOBS_JOB_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/identity/owner.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/options.h"
#include "sparsefw/pattern.h"
#include "sparsefw/solver.h"
#include "sparsefw/sweep.h"

namespace sparsefw::server {

// Which masks of a sweep are kept as tensors.
enum class SweepKeep {
  kBest,  // the one with the least loss of every pattern
  kAll,
};

struct JobSpec {
  std::string weight;  // tensor names
  std::string gram;
  std::string warm_mask;      // may be empty
  std::string warm_saliency;  // may be empty
  Pattern pattern;
  SolveOptions options;                                // without a deadline: see Job::deadline
  int priority = 0;                                    // [-100, 100], higher first
  absl::Duration deadline = absl::InfiniteDuration();  // counted from acceptance
  absl::Duration result_ttl = absl::Hours(24);
  std::map<std::string, std::string> labels;
  std::string device;  // "", "auto", "cpu", ...
  bool return_pruned_weight = false;
  std::vector<SweepPoint> sweep;  // empty: one solve, of `pattern` and `options`
  SweepKeep sweep_keep = SweepKeep::kBest;
  // The job of a Prune call that is not detached: it does not outlive a server that
  // ends without a drain, since the stream that followed it has ended.
  bool ends_with_stream = false;
  // options.shrinkage, and that of the sweep's points, is to follow from the tokens of the Gram
  // matrix: ShrinkageFor. A submission has it; the kept job does not.
  bool shrinks_by_tokens = false;
  // That the options were taken from: asked for, or PresetOf. Told to clients.
  std::optional<Preset> preset = {};
  std::vector<std::string> preset_overrides;  // OptionInfo::name of what was set beside it
  std::string traceparent;  // W3C trace context of the call that brought it; may be empty
};

// The points of the sweep; without a sweep, one point with the job's own options.
std::vector<SweepPoint> PointsOf(const JobSpec& spec);
// `status` with "sweep.points[index]: " before the message.
absl::Status AtPoint(size_t index, const absl::Status& status);
// The first error of `check` over the points; for a sweep it names the point.
absl::Status CheckPoints(const JobSpec& spec,
                         const std::function<absl::Status(const SweepPoint&)>& check);

// The known shapes of a job's inputs. Empty: not known.
struct InputSpecs {
  std::optional<MatrixSpec> weight;
  std::optional<MatrixSpec> gram;
  std::optional<MatrixSpec> warm_mask;  // its dtype has no meaning
  std::optional<MatrixSpec> warm_saliency;
  bool activations = false;  // `gram` is to be their sum
};

enum class JobState { kQueued, kRunning, kSucceeded, kFailed, kCancelled };
constexpr std::string_view NameOf(JobState state) {
  constexpr std::string_view kNames[] = {"queued", "running", "succeeded", "failed", "cancelled"};
  static_assert(std::size(kNames) == static_cast<size_t>(JobState::kCancelled) + 1);
  const auto index = static_cast<size_t>(state);
  return index < std::size(kNames) ? kNames[index] : "other";
}
constexpr bool IsTerminal(JobState state) {
  return state != JobState::kQueued && state != JobState::kRunning;
}

// How far a run has come. It changes often, so it is kept apart from the job while that runs.
struct JobProgress {
  ProgressReport report;
  int64_t revision = 0;  // of the job with this progress
};

// How far runs of a job have come; none: 0, 0.
struct RunMark {
  int64_t part = 0;  // of a report the point of the sweep, of a checkpoint the stage
  int64_t iteration = 0;
  friend auto operator<=>(const RunMark&, const RunMark&) = default;
};

// A state and the revision of the change into it.
struct StateChange {
  JobState state = JobState::kQueued;
  int64_t revision = 0;
};

struct SweepOutcome;

// A sweep has the result of the point with the least loss among those with the first point's
// pattern.
struct JobResult {
  std::string mask;           // tensor names
  std::string pruned_weight;  // may be empty
  SolveSummary solve;
  bool weights_updated = false;  // solve.reconstructed_loss is valid
  std::string device;
  absl::Duration queue_time;
  std::vector<SweepOutcome> sweep;  // by point; empty without a sweep
  int best_point = 0;
  // Not OK: the mask is stored, but another requested output is not. The job then
  // fails with this error and keeps the result.
  absl::Status incomplete;
};

struct SweepOutcome {
  absl::Status error;  // not OK: the point has no result
  JobResult result;    // its tensors are empty where they were not kept
};

struct Job {
  std::string name;  // "jobs/<id>"
  JobSpec spec;
  JobState state = JobState::kQueued;
  std::optional<ProgressReport> progress;
  std::optional<JobResult> result;
  // Why it is kFailed; of a kCancelled job why, where no caller asked for that.
  absl::Status error;
  int64_t revision = 0;  // 1 on creation; grows with every change
  // The revision of the newest state change (not mere progress).
  int64_t state_revision = 0;
  // Oldest first. A job that a restart interrupts goes back to kQueued, so a state
  // may come more than once; the oldest changes of very many are dropped.
  std::vector<StateChange> states;
  absl::Time create_time;
  // create_time + spec.deadline. A queued job fails then; a running one ends with
  // its best mask. The one deadline of all points of a sweep.
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time start_time = absl::InfinitePast();
  absl::Time end_time = absl::InfinitePast();
  absl::Time expire_time = absl::InfiniteFuture();
  int queue_position = 0;  // among the jobs of its tenant; computed when read
  Owner owner;
  int64_t rows = 0;  // of the weight
  int64_t cols = 0;
  int attempts = 0;  // runs begun, but for those that an orderly drain interrupted
  // The last of these in a row that ended with the process and came no further than those before.
  int vain_attempts = 0;
  RunMark reported;    // the furthest progress that was stored when a process ended
  RunMark saved;       // the furthest checkpoint that was stored then
  bool alone = false;  // its last run had no other beside it
  // A caller was told that the job, which runs, stops: no later process runs it again.
  bool cancel_requested = false;
  std::string request_id;  // of the client; may be empty
};

// Tells apart the requests that may make a job under one request id. Both have 32 bytes.
struct RequestDigest {
  std::string now;          // is stored
  std::string before = {};  // what earlier builds stored of the same request
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_H_
