// A spool whose disk fills up, fails or stands still when the test says so.
#ifndef SPARSEFW_TESTS_SERVER_TENSORS_FAULTY_SPOOL_H_
#define SPARSEFW_TESTS_SERVER_TENSORS_FAULTY_SPOOL_H_

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/tensors/spool/spool.h"
#include "sparsefw/mutex.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {

// Thread-safe.
class Faults {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // After `bytes` more bytes every write fails with `status`.
  void FailWritesAfter(int64_t bytes, absl::Status status) {
    MutexLock lock(mutex_);
    writable_ = bytes;
    status_ = std::move(status);
  }
  void FailCreate(absl::Status status) {
    MutexLock lock(mutex_);
    create_ = std::move(status);
  }
  void FailMap(absl::Status status) {  // and reading
    MutexLock lock(mutex_);
    map_ = std::move(status);
  }
  void FailSync(absl::Status status) {
    MutexLock lock(mutex_);
    sync_ = std::move(status);
  }
  // As the kernel does: the next one tells of the error, and those after it do not.
  void FailOneSync(absl::Status status) {
    MutexLock lock(mutex_);
    one_sync_ = std::move(status);
  }
  int syncs() {
    MutexLock lock(mutex_);
    return syncs_;
  }
  // Whoever creates or writes a file from now on waits; or who reads one.
  void Stop() {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  void StopReading() {
    MutexLock lock(mutex_);
    reading_stopped_ = true;
  }
  void Go() {
    MutexLock lock(mutex_);
    stopped_ = reading_stopped_ = false;
    changed_.NotifyAll();
  }
  void AwaitStopped(int callers) {
    MutexLock lock(mutex_);
    while (waiting_ < callers) changed_.Wait(mutex_);
  }

  absl::Status OnCreate() {
    MutexLock lock(mutex_);
    WaitWhile(stopped_);
    return create_;
  }
  absl::Status OnMap() {
    MutexLock lock(mutex_);
    WaitWhile(reading_stopped_);
    return map_;
  }
  absl::Status OnSync() {
    MutexLock lock(mutex_);
    ++syncs_;
    if (!one_sync_.ok()) return std::exchange(one_sync_, absl::OkStatus());
    return sync_;
  }
  // How much of it is written, and what comes then.
  std::pair<size_t, absl::Status> OnWrite(size_t size) {
    MutexLock lock(mutex_);
    WaitWhile(stopped_);
    const auto wanted = static_cast<int64_t>(size);
    const int64_t allowed = std::min(wanted, writable_);
    if (writable_ != kNever) writable_ -= allowed;
    return {static_cast<size_t>(allowed), allowed < wanted ? status_ : absl::OkStatus()};
  }

 private:
  void WaitWhile(const bool& stopped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++waiting_;
    changed_.NotifyAll();
    while (stopped) changed_.Wait(mutex_);
    --waiting_;
  }

  Mutex mutex_;
  CondVar changed_;
  int64_t writable_ ABSL_GUARDED_BY(mutex_) = kNever;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  absl::Status create_ ABSL_GUARDED_BY(mutex_);
  absl::Status map_ ABSL_GUARDED_BY(mutex_);
  absl::Status sync_ ABSL_GUARDED_BY(mutex_);
  absl::Status one_sync_ ABSL_GUARDED_BY(mutex_);
  int syncs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

class FaultyFile final : public SpoolFile {
 public:
  FaultyFile(std::unique_ptr<SpoolFile> file, std::shared_ptr<Faults> faults)
      : file_(std::move(file)), faults_(std::move(faults)) {}

  absl::Status Write(int64_t offset, std::span<const std::byte> bytes) override {
    const auto [allowed, then] = faults_->OnWrite(bytes.size());
    if (absl::Status status = file_->Write(offset, bytes.first(allowed)); !status.ok()) {
      return status;
    }
    return then;
  }
  absl::Status Read(int64_t offset, std::span<std::byte> bytes) const override {
    if (absl::Status status = faults_->OnMap(); !status.ok()) return status;
    return file_->Read(offset, bytes);
  }
  absl::Status Sync() override {
    if (absl::Status status = faults_->OnSync(); !status.ok()) return status;
    return file_->Sync();
  }
  void Remove() override { file_->Remove(); }
  void Keep() override { file_->Keep(); }
  absl::StatusOr<MappedBytes> Map() const override {
    if (absl::Status status = faults_->OnMap(); !status.ok()) return status;
    return file_->Map();
  }

 private:
  const std::unique_ptr<SpoolFile> file_;
  const std::shared_ptr<Faults> faults_;
};

class FaultySpool final : public Spool {
 public:
  FaultySpool(std::shared_ptr<Spool> spool, std::shared_ptr<Faults> faults)
      : spool_(std::move(spool)), faults_(std::move(faults)) {}

  absl::StatusOr<std::unique_ptr<SpoolFile>> Create(std::string_view id, int64_t size) override {
    if (absl::Status status = faults_->OnCreate(); !status.ok()) return status;
    auto file = spool_->Create(id, size);
    if (!file.ok()) return file;
    return std::make_unique<FaultyFile>(*std::move(file), faults_);
  }
  absl::StatusOr<std::unique_ptr<SpoolFile>> Adopt(std::string_view id, int64_t size) override {
    auto file = spool_->Adopt(id, size);
    if (!file.ok()) return file;
    return std::make_unique<FaultyFile>(*std::move(file), faults_);
  }
  absl::StatusOr<std::vector<SpoolEntry>> List() const override { return spool_->List(); }
  absl::StatusOr<std::string> Owner() const override { return spool_->Owner(); }
  absl::Status SetOwner(std::string_view store) override { return spool_->SetOwner(store); }
  void Release(std::string_view id) override { spool_->Release(id); }
  void SyncNames() override { spool_->SyncNames(); }
  absl::Status Remove(std::string_view id) override { return spool_->Remove(id); }
  void MarkDeleted(std::string_view id) override { spool_->MarkDeleted(id); }
  void UnmarkDeleted(std::string_view id) override { spool_->UnmarkDeleted(id); }

 private:
  const std::shared_ptr<Spool> spool_;
  const std::shared_ptr<Faults> faults_;
};

inline absl::Status DiskFull() {
  return WithReason(absl::ResourceExhaustedError("the disk is full"), "SPOOL_FULL");
}
inline absl::Status DiskBroken() {
  return WithReason(absl::InternalError("the disk is broken"), "SPOOL_FAILED");
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_TENSORS_FAULTY_SPOOL_H_
