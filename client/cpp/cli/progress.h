// Progress on standard error: one live line on a terminal, lines otherwise.
#ifndef SPARSEFW_CLIENT_CLI_PROGRESS_H_
#define SPARSEFW_CLIENT_CLI_PROGRESS_H_

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "sparsefw/client/options.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

struct Console {
  std::ostream& out;  // results
  std::ostream& err;  // everything else
  bool err_is_terminal = false;
  int columns = 80;
};

// Not thread-safe: used from the thread that transfers or watches.
class ProgressDisplay {
 public:
  ProgressDisplay(const Console& console, std::function<absl::Time()> now);
  // Leaves the cursor on a line of its own.
  ~ProgressDisplay();

  // A transfer begins; `verb` is "uploading" or "downloading".
  void StartTransfer(std::string_view verb, std::string_view what);
  void OnTransfer(const client::TransferProgress& progress);
  // The transfer is complete: one line with size, time and rate.
  void EndTransfer();

  // Prints changes of state and new reports.
  void OnJob(const v1::JobEvent& event);

  // A line that stays.
  void Note(std::string_view line);

 private:
  void Live(std::string_view line, bool force);
  void ClearLive();

  const Console console_;
  const std::function<absl::Time()> now_;
  std::string what_;
  std::string verb_;
  absl::Time start_;
  client::TransferProgress transfer_;
  absl::Time last_live_ = absl::InfinitePast();
  bool live_ = false;
  std::string state_;
  int64_t iteration_ = -1;
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_PROGRESS_H_
