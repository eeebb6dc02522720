// The jobs that wait or run now, with the way their loss went, and those that ended last, for the
// status page.
#ifndef SPARSEFW_SERVER_STATUS_LIVE_JOBS_H_
#define SPARSEFW_SERVER_STATUS_LIVE_JOBS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

struct ShownLabels {
  std::map<std::string, std::string> labels;
  int64_t left_out = 0;
};

// Bytes of keys and values that are shown of one job; the longest label alone has 320.
inline constexpr size_t kShownLabelBytes = 512;

// The labels in the order of their keys, without those of sparsefw-cli. A label without room is
// only counted.
ShownLabels ShowLabels(const std::map<std::string, std::string>& labels);

// No error message: it may name what a tenant has.
struct JobEnd {
  JobState state = JobState::kSucceeded;
  std::string reason;  // how the solve stopped, or why the job failed: EndReasonLabel
  absl::Time time;
  std::optional<absl::Duration> ran;  // empty: the job never ran
  // A share of the loss of pruning everything, with new weights where there are any, without a
  // shrinkage.
  std::optional<double> loss;
  // The lower bound as a share of the mask's loss; empty where the bound is 0.
  std::optional<double> certificate;
};

JobEnd EndOf(const Job& job);

// One report of a running job.
struct TracePoint {
  int64_t iteration = 0;
  double relaxed_loss = 0;
  double best_loss = 0;
};

struct LiveJob {
  int64_t number = 0;  // counted from the start of the server
  std::string name;
  ShownLabels labels;
  std::string method;   // "sparsefw"; "sweep of 12" for a sweep
  std::string pattern;  // "per_row 60%"
  int64_t rows = 0;
  int64_t cols = 0;
  int attempts = 0;
  absl::Time create_time;
  absl::Time start_time;  // of this run
  ProgressReport progress;
  std::vector<TracePoint> trace;  // oldest first, at most kTracePoints
};

struct EndedJob {
  LiveJob job;  // without progress and trace
  JobEnd end;
};

// Thread-safe; every call is quick. It holds a job from its acceptance to its end, and of the last
// ends in memory alone: a server that starts has none.
class LiveJobs {
 public:
  static constexpr size_t kTracePoints = 128;
  static constexpr size_t kEndedKept = 20;

  void Accepted(const Job& job);
  void Started(const Job& job);
  // Where a trace is full, every second point goes: it stays evenly spread.
  void Progressed(const std::string& job, const ProgressReport& report);
  void Ended(const Job& job);
  void Gone(const Job& job);  // left for a later process

  struct View {
    std::vector<LiveJob> running;  // the longest first
    std::vector<LiveJob> queued;   // the oldest first, at most `limit`
    int64_t queue_length = 0;
    std::vector<EndedJob> ended;  // the latest first, at most kEndedKept
  };
  View Look(size_t limit) const;

 private:
  struct Entry {
    LiveJob job;
    bool running = false;
    int64_t stride = 1;  // of the reports that are kept
    int64_t reports = 0;
  };
  mutable Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::string, Entry> jobs_ ABSL_GUARDED_BY(mutex_);
  std::deque<EndedJob> ended_ ABSL_GUARDED_BY(mutex_);  // the latest first
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STATUS_LIVE_JOBS_H_
