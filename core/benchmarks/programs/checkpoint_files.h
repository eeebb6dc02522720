// Checkpoints of a benchmark in a file, as a server keeps them: written beside it,
// flushed to the disk, renamed.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_CHECKPOINT_FILES_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_CHECKPOINT_FILES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/benchmarks/programs/bench_program.h"
#include "sparsefw/checkpoint.h"

namespace sparsefw::bench {

class FileSink final : public CheckpointSink {
 public:
  FileSink(std::string path, absl::Duration period) : path_(std::move(path)), period_(period) {}
  ~FileSink() override { Abandon(); }

  // A period of 0: at every report point.
  bool Due(const CheckpointTiming& timing) override {
    return period_ <= absl::ZeroDuration() || DueEvery(period_, timing);
  }
  absl::Status Begin(const CheckpointInfo& info) override;
  absl::Status Write(std::span<const std::byte> piece) override;
  absl::Status Commit() override;
  void Abandon() override;

  int64_t count() const { return count_; }     // committed
  int64_t bytes() const { return bytes_; }     // of the last one
  double seconds() const { return seconds_; }  // from Begin to Commit, of all

 private:
  const std::string path_;
  const absl::Duration period_;
  int file_ = -1;
  Stopwatch watch_;
  int64_t count_ = 0;
  int64_t bytes_ = 0;
  double seconds_ = 0;
};

std::vector<std::byte> ReadWhole(const std::string& path);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_CHECKPOINT_FILES_H_
