// The rules of the safetensors format that reader and writer share, and the statuses of files.
#ifndef SPARSEFW_CORE_SRC_IO_SAFETENSORS_FORMAT_H_
#define SPARSEFW_CORE_SRC_IO_SAFETENSORS_FORMAT_H_

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sparsefw::io {

inline constexpr std::string_view kMetadataName = "__metadata__";
inline constexpr int64_t kLengthBytes = 8;                  // of the header's length, little-endian
static_assert(std::endian::native == std::endian::little);  // read and written as it lies in memory

// Bits of one element of any dtype that the format knows, not only of those
// that we compute with.
std::optional<int64_t> BitsOfDType(std::string_view dtype_name);

// Bytes of a tensor with elements of `bits` bits; nothing when a dimension is
// negative, the size is beyond int64 or not whole bytes.
std::optional<int64_t> TensorBytes(std::span<const int64_t> shape, int64_t bits);

// For messages: quoted, control characters escaped, cut when it is long.
std::string Quoted(std::string_view text);
std::string ShapeText(std::span<const int64_t> shape);  // "[2, 3]"

// "<path>: cannot be <action>: <the error in words>", for example with the
// action "opened". `error` is an errno.
absl::Status FileError(std::string_view path, std::string_view action, int error);

// InvalidArgument (FILE_INVALID): "<path>: <rule>".
absl::Status InvalidFile(std::string_view path, std::string_view rule);

// InvalidFile of one tensor.
absl::Status TensorError(std::string_view path, std::string_view name, std::string_view rule);

}  // namespace sparsefw::io

#endif  // SPARSEFW_CORE_SRC_IO_SAFETENSORS_FORMAT_H_
