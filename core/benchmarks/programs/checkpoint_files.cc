#include "core/benchmarks/programs/checkpoint_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

namespace sparsefw::bench {

absl::Status FileSink::Begin(const CheckpointInfo&) {
  watch_ = Stopwatch();
  bytes_ = 0;
  file_ = open((path_ + ".partial").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  return file_ < 0 ? absl::ErrnoToStatus(errno, path_) : absl::OkStatus();
}

absl::Status FileSink::Write(std::span<const std::byte> piece) {
  bytes_ += static_cast<int64_t>(piece.size());
  while (!piece.empty()) {
    const ssize_t count = write(file_, piece.data(), piece.size());
    if (count < 0) return absl::ErrnoToStatus(errno, path_);
    piece = piece.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status FileSink::Commit() {
  if (fdatasync(file_) != 0) return absl::ErrnoToStatus(errno, path_);
  close(std::exchange(file_, -1));
  if (std::rename((path_ + ".partial").c_str(), path_.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, path_);
  }
  ++count_;
  seconds_ += watch_.seconds();
  return absl::OkStatus();
}

void FileSink::Abandon() {
  if (file_ >= 0) close(std::exchange(file_, -1));
}

std::vector<std::byte> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<std::byte> bytes(file ? static_cast<size_t>(file.tellg()) : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) Die("cannot read the checkpoint \"" + path + "\"");
  return bytes;
}

}  // namespace sparsefw::bench
