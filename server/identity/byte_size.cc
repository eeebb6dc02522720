#include "server/identity/byte_size.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sparsefw::server {

std::optional<int64_t> ParseBytes(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, int64_t>, 11> kUnits = {{
      {"", 1},
      {"b", 1},
      {"kib", int64_t{1} << 10},
      {"mib", int64_t{1} << 20},
      {"gib", int64_t{1} << 30},
      {"tib", int64_t{1} << 40},
      {"kb", 1'000},
      {"mb", 1'000'000},
      {"gb", 1'000'000'000},
      {"tb", 1'000'000'000'000},
      {"bytes", 1},
  }};
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t number = 0;
  if (!absl::SimpleAtoi(std::string(text.substr(0, digits)), &number) || number < 1) {
    return std::nullopt;
  }
  const std::string rest(text.substr(digits));
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(rest));
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    if (number > std::numeric_limits<int64_t>::max() / factor) return std::nullopt;
    return number * factor;
  }
  return std::nullopt;
}

std::string FormatBytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes, kUnits[unit]);
}

}  // namespace sparsefw::server
