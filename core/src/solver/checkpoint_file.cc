#include "core/src/solver/checkpoint_file.h"

#include <algorithm>
#include <cstring>

#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Bytes checksummed and passed on at once, which stay in the cache in between.
constexpr size_t kPieceBytes = size_t{1} << 20;

constexpr char kBeginMark[8] = "SFWCKPT";
constexpr char kEndMark[8] = "SFWCEND";

struct Head {
  char mark[8];
  uint64_t format;
};
constexpr size_t kCrcBytes = sizeof(uint32_t);
constexpr size_t kTailBytes = sizeof(kEndMark) + sizeof(uint64_t) + kCrcBytes;

template <typename T>
T ValueAt(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

absl::StatusOr<uint32_t> ChecksumOf(std::span<const std::byte> bytes, const StopSignal* stop) {
  uint32_t crc = 0;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPieceBytes, bytes.size()))) {
    if (stop != nullptr && stop->requested()) return absl::CancelledError("stopped");
    crc = ExtendCrc32c(crc, bytes.first(std::min(kPieceBytes, bytes.size())));
  }
  return crc;
}

}  // namespace

absl::Status CheckpointWriter::OfSink(absl::Status status) {
  sink_failed_ = sink_failed_ || !status.ok();
  return status;
}

absl::Status CheckpointWriter::Begin(const CheckpointInfo& info) {
  SPARSEFW_RETURN_IF_ERROR(OfSink(sink_.Begin(info)));
  Head head = {.mark = {}, .format = kCheckpointFormat};
  std::copy_n(kBeginMark, sizeof(head.mark), head.mark);
  return Write(BytesOf(head));
}

absl::Status CheckpointWriter::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (stop_ != nullptr && stop_->requested()) {
      return absl::CancelledError("stopped while a checkpoint was written");
    }
    const auto piece = bytes.first(std::min(kPieceBytes, bytes.size()));
    bytes = bytes.subspan(piece.size());
    crc_ = ExtendCrc32c(crc_, piece);
    bytes_ += piece.size();
    SPARSEFW_RETURN_IF_ERROR(OfSink(sink_.Write(piece)));
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::End() {
  SPARSEFW_RETURN_IF_ERROR(Write(std::as_bytes(std::span(kEndMark))));
  const uint64_t total = bytes_ + sizeof(uint64_t) + kCrcBytes;
  SPARSEFW_RETURN_IF_ERROR(Write(BytesOf(total)));
  const uint32_t crc = crc_;
  SPARSEFW_RETURN_IF_ERROR(Write(BytesOf(crc)));
  return OfSink(sink_.Commit());
}

absl::StatusOr<StateReader> OpenUnchecked(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Head) + kTailBytes) {
    return InvalidCheckpoint("a checkpoint must have at least %d bytes; got %d",
                             sizeof(Head) + kTailBytes, bytes.size());
  }
  const Head head = ValueAt<Head>(bytes, 0);
  if (!std::equal(std::begin(head.mark), std::end(head.mark), kBeginMark)) {
    return InvalidCheckpoint("a checkpoint must begin with \"%s\"; got other bytes", kBeginMark);
  }
  if (head.format != kCheckpointFormat) {
    return InvalidCheckpoint("a checkpoint must have format %d; got %d", kCheckpointFormat,
                             head.format);
  }
  const size_t tail = bytes.size() - kTailBytes;
  const auto total = ValueAt<uint64_t>(bytes, tail + sizeof(kEndMark));
  if (std::memcmp(bytes.data() + tail, kEndMark, sizeof(kEndMark)) != 0 || total != bytes.size()) {
    return InvalidCheckpoint(
        "a checkpoint must end with \"%s\" and its size; it is cut off after %d bytes", kEndMark,
        bytes.size());
  }
  return StateReader(bytes.subspan(sizeof(Head), tail - sizeof(Head)));
}

absl::StatusOr<StateReader> OpenCheckpoint(std::span<const std::byte> bytes,
                                           const StopSignal* stop) {
  SPARSEFW_ASSIGN_OR_RETURN(const StateReader fields, OpenUnchecked(bytes));
  const auto expected = ValueAt<uint32_t>(bytes, bytes.size() - kCrcBytes);
  SPARSEFW_ASSIGN_OR_RETURN(const uint32_t crc,
                            ChecksumOf(bytes.first(bytes.size() - kCrcBytes), stop));
  if (crc != expected) {
    return InvalidCheckpoint(
        "a checkpoint must have the CRC32C that it ends with, %08x; its bytes have %08x", expected,
        crc);
  }
  return fields;
}

}  // namespace sparsefw
