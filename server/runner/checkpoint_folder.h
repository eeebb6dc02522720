// Checkpoints of running jobs, as files.
#ifndef SPARSEFW_SERVER_RUNNER_CHECKPOINT_FOLDER_H_
#define SPARSEFW_SERVER_RUNNER_CHECKPOINT_FOLDER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/net/descriptor.h"
#include "server/tensors/spool/spool.h"
#include "sparsefw/checkpoint.h"

namespace sparsefw::server {

// One file a job, <id>.checkpoint: the last complete one. A new one is written
// beside it, synced and renamed, so that a crash leaves the one or the other.
// Thread-safe; one sink at a time for a job. Must outlive its sinks.
//
// Their size is not reserved from any budget: where the disk is full a checkpoint
// fails, is logged, and its solve goes on.
class CheckpointFolder {
 public:
  // Told of a checkpoint that failed.
  using OnError = std::function<void(const std::string& job, const absl::Status& error)>;

  // Makes the folder (mode 0700) where it is not there. A solve writes a
  // checkpoint when `period` has passed since its last one (DueEvery).
  // Errors: PermissionDenied, Internal (CHECKPOINT_FAILED)
  static absl::StatusOr<std::unique_ptr<CheckpointFolder>> Open(const std::string& path,
                                                                absl::Duration period,
                                                                OnError on_error);

  // Has every solve write a checkpoint at its next report point: a drain will stop it.
  void CheckpointSoon() { soon_ = true; }

  // Jobs are "jobs/<id>".
  std::unique_ptr<CheckpointSink> SinkOf(const std::string& job);
  // The last complete one; empty where there is none.
  // Errors: Internal (CHECKPOINT_FAILED)
  absl::StatusOr<MappedBytes> Find(std::string_view job) const;
  void Remove(std::string_view job);
  // It cannot be used: tells of it, and removes it.
  void Refused(const std::string& job, const absl::Status& why);
  // Removes the remains of an interrupted write too.
  void RemoveAllBut(const std::set<std::string>& jobs);

 private:
  class Sink;
  CheckpointFolder(std::string path, Descriptor folder, absl::Duration period, OnError on_error)
      : path_(std::move(path)),
        folder_(std::move(folder)),
        period_(period),
        on_error_(std::move(on_error)) {}

  const std::string path_;
  const Descriptor folder_;
  const absl::Duration period_;
  const OnError on_error_;
  std::atomic<bool> soon_{false};
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_CHECKPOINT_FOLDER_H_
