// A Gram matrix in the memory of one device, shared by the jobs that run there.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_SHARED_GRAM_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_SHARED_GRAM_H_

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

// Counters of one device since the start.
struct GramCacheStats {
  std::atomic<int64_t> uploads = 0;
  std::atomic<int64_t> reuses = 0;  // Gets that needed no upload
};

// Thread-safe. The device memory is freed with the last of this object and the
// pointers that Get returned.
class SharedGram {
 public:
  using Gram = std::shared_ptr<const DeviceGram>;
  using Upload = std::function<absl::StatusOr<Gram>()>;

  explicit SharedGram(std::shared_ptr<GramCacheStats> stats) : stats_(std::move(stats)) {}

  // The first caller uploads, without a lock held; others wait for it. When the
  // upload fails its caller gets the error, and the next caller tries again.
  // Errors: what `upload` says
  //         Cancelled  `stop` was set while another caller uploaded
  absl::StatusOr<Gram> Get(const Upload& upload, const StopSignal& stop);

 private:
  const std::shared_ptr<GramCacheStats> stats_;
  Mutex mutex_;
  CondVar changed_;  // uploading_
  bool uploading_ ABSL_GUARDED_BY(mutex_) = false;
  Gram gram_ ABSL_GUARDED_BY(mutex_);  // null: not there
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_SHARED_GRAM_H_
