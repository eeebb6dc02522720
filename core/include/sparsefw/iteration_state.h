// An engine's part of a checkpoint, written and read again: named fields
// of bytes, one after the other.
//
// A field is its name, its size and its bytes. Whoever reads asks for the fields
// in the order in which they were written and says how many bytes each must have:
// whatever is not as expected is an error, not a wrong state.
#ifndef SPARSEFW_ITERATION_STATE_H_
#define SPARSEFW_ITERATION_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {

// That a checkpoint is not one to go on from: it is damaged or another solve's.
template <typename... Args>
absl::Status InvalidCheckpoint(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", format, args...);
}

// In the byte order and layout of this machine; stands before the bytes of a field.
struct FieldHeader {
  char name[16] = {};  // padded with zeros
  uint64_t bytes = 0;
};
static_assert(sizeof(FieldHeader) == 24);

inline FieldHeader HeaderOf(std::string_view name, size_t bytes) {
  FieldHeader header;
  std::copy_n(name.data(), std::min(name.size(), sizeof(header.name)), header.name);
  header.bytes = bytes;
  return header;
}

// One value as bytes. Types with padding have no defined bytes.
template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> WritableBytesOf(T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_writable_bytes(std::span(&value, 1));
}

// Not thread-safe.
class StateWriter {
 public:
  virtual ~StateWriter() = default;

  // The next bytes, as many as the caller has at hand; they are read before it
  // returns. Looks at the stop signal once in a MiB.
  // Errors: Cancelled; any other: the checkpoint cannot be written
  virtual absl::Status Write(std::span<const std::byte> bytes) = 0;

  // Begins a field of that many bytes, which calls of Write must follow with.
  // Names have up to 16 characters.
  absl::Status BeginField(std::string_view name, size_t bytes) {
    return Write(BytesOf(HeaderOf(name, bytes)));
  }
  absl::Status Field(std::string_view name, std::span<const std::byte> bytes) {
    SPARSEFW_RETURN_IF_ERROR(BeginField(name, bytes.size()));
    return Write(bytes);
  }
};

// Over bytes that the caller keeps, those of a checkpoint whose checksum was right.
class StateReader {
 public:
  explicit StateReader(std::span<const std::byte> bytes) : left_(bytes) {}

  // The bytes of the next field, whatever their number.
  // Errors: FailedPrecondition (CHECKPOINT_INVALID)  it is another one, or cut off
  absl::StatusOr<std::span<const std::byte>> AnyField(std::string_view name) {
    const FieldHeader expected = HeaderOf(name, 0);
    FieldHeader header;
    if (left_.size() < sizeof(header)) return Missing(name);
    std::memcpy(&header, left_.data(), sizeof(header));
    const bool named = std::equal(std::begin(header.name), std::end(header.name), expected.name);
    if (!named || header.bytes > left_.size() - sizeof(header)) return Missing(name);
    const std::span<const std::byte> field = left_.subspan(sizeof(header), header.bytes);
    left_ = left_.subspan(sizeof(header) + header.bytes);
    return field;
  }

  // The bytes of the next field, `bytes` of them.
  // Errors: likewise
  absl::StatusOr<std::span<const std::byte>> Field(std::string_view name, size_t bytes) {
    SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> field, AnyField(name));
    if (field.size() == bytes) return field;
    return InvalidCheckpoint("field \"%s\" of a checkpoint must have %d bytes; got %d", name, bytes,
                             field.size());
  }

  // Copies the bytes of the next field to `to`.
  // Errors: likewise
  absl::Status Read(std::string_view name, std::span<std::byte> to) {
    SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> field, Field(name, to.size()));
    if (!field.empty()) std::memcpy(to.data(), field.data(), field.size());
    return absl::OkStatus();
  }

  bool at_end() const { return left_.empty(); }

 private:
  static absl::Status Missing(std::string_view name) {
    return InvalidCheckpoint("a checkpoint must have a field \"%s\" here; got another one or none",
                             name);
  }

  std::span<const std::byte> left_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_ITERATION_STATE_H_
