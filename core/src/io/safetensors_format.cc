#include "core/src/io/safetensors_format.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sparsefw/reason.h"

namespace sparsefw::io {
namespace {

constexpr std::array kDTypes = std::to_array<std::pair<std::string_view, int64_t>>({
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"I16", 16},        {"U16", 16},
    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"I64", 64},    {"U64", 64},    {"F64", 64},        {"C64", 64},        {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
});

constexpr size_t kQuotedBytes = 80;

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status FileError(std::string_view path, std::string_view action, int error) {
  // Not strerror: it is not thread-safe.
  return absl::Status(CodeOf(error), absl::StrFormat("%s: cannot be %s: %s", path, action,
                                                     std::system_category().message(error)));
}

absl::Status InvalidFile(std::string_view path, std::string_view rule) {
  return Invalid("FILE_INVALID", "%s: %s", path, rule);
}

std::optional<int64_t> BitsOfDType(std::string_view dtype_name) {
  const auto found =
      std::ranges::find(kDTypes, dtype_name, &std::pair<std::string_view, int64_t>::first);
  if (found == kDTypes.end()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> TensorBytes(std::span<const int64_t> shape, int64_t bits) {
  if (std::ranges::any_of(shape, [](int64_t dim) { return dim < 0; })) return std::nullopt;
  // First: a product with a zero in it is zero, wherever the zero stands.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  // In 128 bits: 2^63-1 bytes of packed 4-bit elements are more than 2^63 bits.
  using Wide = unsigned __int128;
  constexpr Wide kMostBits = static_cast<Wide>(INT64_MAX) * 8;
  Wide total = static_cast<Wide>(bits);
  for (const int64_t dim : shape) {
    if (total > kMostBits / static_cast<Wide>(dim)) return std::nullopt;
    total *= static_cast<Wide>(dim);
  }
  if (total % 8 != 0) return std::nullopt;
  return static_cast<int64_t>(total / 8);
}

std::string Quoted(std::string_view text) {
  size_t length = std::min(text.size(), kQuotedBytes);
  if (length < text.size()) {
    // Not in the middle of a UTF-8 sequence.
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
  }
  const std::string escaped = absl::Utf8SafeCEscape(absl::string_view(text.data(), length));
  return absl::StrFormat("\"%s%s\"", escaped, length < text.size() ? "..." : "");
}

std::string ShapeText(std::span<const int64_t> shape) {
  return absl::StrFormat("[%s]", absl::StrJoin(shape, ", "));
}

absl::Status TensorError(std::string_view path, std::string_view name, std::string_view rule) {
  return InvalidFile(path, absl::StrFormat("tensor %s: %s", Quoted(name), rule));
}

}  // namespace sparsefw::io
