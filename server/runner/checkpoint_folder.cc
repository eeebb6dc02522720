#include "server/runner/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>

#include "server/failpoint/failpoint.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kJobPrefix = "jobs/";
constexpr std::string_view kSuffix = ".checkpoint";
constexpr std::string_view kPartSuffix = ".part";

absl::Status Failed(std::string_view action, int error) {
  const std::string cause = std::system_category().message(error);
  return Refuse(error == ENOSPC || error == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                   : absl::StatusCode::kInternal,
                "CHECKPOINT_FAILED", "a checkpoint cannot be %s: %s", action, cause);
}

std::string FileOf(std::string_view job) {
  if (job.starts_with(kJobPrefix)) job.remove_prefix(kJobPrefix.size());
  return std::string(job) + std::string(kSuffix);
}

}  // namespace

class CheckpointFolder::Sink final : public CheckpointSink {
 public:
  Sink(CheckpointFolder& folder, std::string job)
      : folder_(folder),
        job_(std::move(job)),
        name_(FileOf(job_)),
        part_(name_ + std::string(kPartSuffix)) {}
  ~Sink() override { Abandon(); }

  bool Due(const CheckpointTiming& timing) override {
    if (DueEvery(folder_.period_, timing)) return true;
    return folder_.soon_ && !std::exchange(drained_, true);
  }

  absl::Status Begin(const CheckpointInfo& /*info*/) override {
    const int fd = openat(folder_.folder_.get(), part_.c_str(),
                          O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Reported(Failed("made", errno));
    file_ = fdopen(fd, "wb");
    if (file_ != nullptr) return absl::OkStatus();
    const int error = errno;
    close(fd);
    return Reported(Failed("made", error));
  }

  absl::Status Write(std::span<const std::byte> piece) override {
    if (std::fwrite(piece.data(), 1, piece.size(), file_) == piece.size()) return absl::OkStatus();
    return Reported(Failed("written", errno));
  }

  absl::Status Commit() override {
    if (std::fflush(file_) != 0 || fdatasync(fileno(file_)) != 0) {
      return Reported(Failed("written", errno));
    }
    Failpoint("checkpoint.written");
    const int folder = folder_.folder_.get();
    if (renameat(folder, part_.c_str(), folder, name_.c_str()) != 0 || fsync(folder) != 0) {
      return Reported(Failed("named", errno));
    }
    Failpoint("checkpoint.committed");
    std::fclose(std::exchange(file_, nullptr));
    return absl::OkStatus();
  }

  void Abandon() override {
    if (file_ == nullptr) return;
    std::fclose(std::exchange(file_, nullptr));
    unlinkat(folder_.folder_.get(), part_.c_str(), 0);
  }

 private:
  absl::Status Reported(absl::Status error) const {
    folder_.on_error_(job_, error);
    return error;
  }

  CheckpointFolder& folder_;
  const std::string job_;
  const std::string name_;
  const std::string part_;
  std::FILE* file_ = nullptr;
  bool drained_ = false;  // the one that a drain asks for has been written
};

absl::StatusOr<std::unique_ptr<CheckpointFolder>> CheckpointFolder::Open(const std::string& path,
                                                                         absl::Duration period,
                                                                         OnError on_error) {
  const auto error = [&path](int number) {
    return Refuse(number == EACCES || number == EPERM ? absl::StatusCode::kPermissionDenied
                                                      : absl::StatusCode::kInternal,
                  "CHECKPOINT_FAILED", "%s: must be a folder that can be written: %s", path,
                  std::system_category().message(number));
  };
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return error(errno);
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok() || faccessat(folder.get(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    return error(errno);
  }
  return std::unique_ptr<CheckpointFolder>(
      new CheckpointFolder(path, std::move(folder), period, std::move(on_error)));
}

std::unique_ptr<CheckpointSink> CheckpointFolder::SinkOf(const std::string& job) {
  return std::make_unique<Sink>(*this, job);
}

absl::StatusOr<MappedBytes> CheckpointFolder::Find(std::string_view job) const {
  const Descriptor fd(
      openat(folder_.get(), FileOf(job).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) {
    if (errno == ENOENT) return MappedBytes();
    return Failed("opened", errno);
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return Failed("examined", errno);
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedBytes();
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return Failed("mapped into memory", errno);
  return MappedBytes(std::span(static_cast<const std::byte*>(data), size));
}

void CheckpointFolder::Remove(std::string_view job) {
  unlinkat(folder_.get(), FileOf(job).c_str(), 0);
}

void CheckpointFolder::Refused(const std::string& job, const absl::Status& why) {
  on_error_(job, why);
  Remove(job);
}

void CheckpointFolder::RemoveAllBut(const std::set<std::string>& jobs) {
  std::set<std::string> kept;
  for (const std::string& job : jobs) kept.insert(FileOf(job));
  const std::string part_suffix = std::string(kSuffix).append(kPartSuffix);
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path_, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool ours = name.ends_with(kSuffix) || name.ends_with(part_suffix);
    if (ours && !kept.contains(name)) unlinkat(folder_.get(), name.c_str(), 0);
  }
}

}  // namespace sparsefw::server
