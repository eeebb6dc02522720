// A Gram matrix in the memory of one device, for all jobs that run there.
#ifndef SPARSEFW_SERVER_JOBS_SHARED_GRAM_H_
#define SPARSEFW_SERVER_JOBS_SHARED_GRAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"
#include "sparsefw/mutex.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::server {

// Of a device, since the start.
struct GramCacheStats {
  std::atomic<int64_t> uploads = 0;
  std::atomic<int64_t> reuses = 0;  // Gets that needed none
};

// Thread-safe. Its memory is free once it and what Get has returned are gone.
class SharedGram {
 public:
  using Gram = std::shared_ptr<const DeviceGram>;
  using Upload = std::function<absl::StatusOr<Gram>()>;

  explicit SharedGram(std::shared_ptr<GramCacheStats> stats) : stats_(std::move(stats)) {}

  // The first caller uploads, without a lock held; others wait for that. When it
  // fails its caller gets the error, and the next one tries.
  // Errors: what `upload` says
  //         Cancelled  `stop` was set while somebody else's upload went on
  absl::StatusOr<Gram> Get(const Upload& upload, const StopSignal& stop);

 private:
  const std::shared_ptr<GramCacheStats> stats_;
  Mutex mutex_;
  CondVar changed_;  // uploading_
  bool uploading_ ABSL_GUARDED_BY(mutex_) = false;
  Gram gram_ ABSL_GUARDED_BY(mutex_);  // null: not there
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SHARED_GRAM_H_
