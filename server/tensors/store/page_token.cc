#include "server/tensors/store/page_token.h"

#include <charconv>
#include <span>

#include "absl/strings/str_format.h"
#include "sparsefw/crc32c.h"

namespace sparsefw::server {
namespace {

constexpr size_t kPositionDigits = 16;

}  // namespace

std::string EncodePageToken(uint64_t position, std::string_view salt) {
  const std::string digits = absl::StrFormat("%016x", position);
  const uint32_t check =
      ExtendCrc32c(Crc32c(std::as_bytes(std::span(salt))), std::as_bytes(std::span(digits)));
  return absl::StrFormat("%s%08x", digits, check);
}

std::optional<uint64_t> DecodePageToken(std::string_view token, std::string_view salt) {
  if (token.size() <= kPositionDigits) return std::nullopt;
  uint64_t position = 0;
  const auto parsed = std::from_chars(token.data(), token.data() + kPositionDigits, position, 16);
  if (parsed.ec != std::errc() || EncodePageToken(position, salt) != token) return std::nullopt;
  return position;
}

}  // namespace sparsefw::server
