// Progress on standard error: one live line on a terminal, lines otherwise.
#ifndef SPARSEFW_CLIENT_CLI_PROGRESS_H_
#define SPARSEFW_CLIENT_CLI_PROGRESS_H_

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "client/cpp/cli/output/progress_line.h"
#include "client/cpp/cli/output/time_left.h"
#include "sparsefw/client/options.h"
#include "sparsefw/mutex.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

struct Console {
  std::ostream& out;             // results
  std::ostream& err;             // everything else
  bool err_is_terminal = false;  // that can clear a line
  bool color = false;            // on err
  // Asked before every painting, since a window may be resized.
  std::function<int()> columns = [] { return 80; };
};

// Thread-safe: an interrupt may print while another thread watches the job.
class ProgressDisplay {
 public:
  // `quiet`: notes only.
  ProgressDisplay(const Console& console, std::function<absl::Time()> now, bool quiet = false);
  // Leaves the cursor on an empty line.
  ~ProgressDisplay();

  // A transfer begins; `verb` is "uploading" or "downloading".
  void StartTransfer(std::string_view verb, std::string_view what);
  void OnTransfer(const client::TransferProgress& progress);
  // The transfer is complete: one line with size, time and rate.
  void EndTransfer();

  // Shows changes of state and new reports.
  void OnJob(const v1::JobEvent& event);

  // Time has passed: between events, which may be far apart, the live line goes on, and without a
  // terminal a line says from time to time that the job still runs.
  void Tick();

  // A line that stays.
  void Note(std::string_view line);

 private:
  void PrintLine(std::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Live(const ProgressLine& line, bool force) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ClearLive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnState(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How long the job has run.
  absl::Duration Elapsed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PaintJob(bool force) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A line that is left out where one was printed a moment ago, unless it is the last.
  void Report(std::string line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Console console_;
  const std::function<absl::Time()> now_;
  const bool quiet_;
  Mutex mutex_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  std::string verb_ ABSL_GUARDED_BY(mutex_);
  absl::Time start_ ABSL_GUARDED_BY(mutex_);
  client::TransferProgress transfer_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_live_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool live_ ABSL_GUARDED_BY(mutex_) = false;
  std::string state_ ABSL_GUARDED_BY(mutex_);
  v1::Job job_ ABSL_GUARDED_BY(mutex_);  // as last seen
  absl::Time running_since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time line_time_ ABSL_GUARDED_BY(mutex_);
  std::string pending_ ABSL_GUARDED_BY(mutex_);  // a report that was left out so far
  int64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string report_ ABSL_GUARDED_BY(mutex_);  // the last one, as a key
  absl::Time report_time_ ABSL_GUARDED_BY(mutex_);
  TimeLeft time_left_ ABSL_GUARDED_BY(mutex_);
};

// Calls Tick four times a second while it lives.
class Ticker {
 public:
  explicit Ticker(ProgressDisplay& display);
  ~Ticker();

 private:
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last: it uses the others
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_PROGRESS_H_
