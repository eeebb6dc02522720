#include "server/jobs/scheduling/shared_gram.h"

#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// How often a waiting caller checks its stop signal, which cannot notify it.
constexpr std::chrono::milliseconds kStopCheckPeriod{20};

}  // namespace

absl::StatusOr<SharedGram::Gram> SharedGram::Get(const Upload& upload, const StopSignal& stop) {
  {
    const MutexLock lock(mutex_);
    while (uploading_) {
      if (stop.requested()) {
        return absl::CancelledError("the job was cancelled while it waited for its Gram matrix");
      }
      changed_.WaitFor(mutex_, kStopCheckPeriod);
    }
    if (gram_ != nullptr) {
      ++stats_->reuses;
      return gram_;
    }
    uploading_ = true;
  }
  const absl::Cleanup tell = [this] {
    const MutexLock lock(mutex_);
    uploading_ = false;
    changed_.NotifyAll();
  };
  SPARSEFW_ASSIGN_OR_RETURN(Gram uploaded, upload());
  ++stats_->uploads;
  const MutexLock lock(mutex_);
  gram_ = std::move(uploaded);
  return gram_;
}

}  // namespace sparsefw::server
