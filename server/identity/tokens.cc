#include "server/identity/tokens.h"

#include <array>
#include <cstdint>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "server/identity/tenants.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

absl::StatusOr<absl::Time> ParseExpiry(const std::string& text) {
  absl::Time time;
  std::string error;
  // absl also knows "infinite-future".
  const bool has_date = !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
  if (!has_date || !absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return absl::InvalidArgumentError(
        "the expiry must be a time of RFC 3339 like 2027-01-31T12:00:00Z");
  }
  return time;
}

absl::StatusOr<TokenTable::Entry> ParseLine(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
  if (fields.size() < 2) {
    return absl::InvalidArgumentError(
        "a line must be tenant:sha256-hex-of-token[:expiry]; got no colon");
  }
  if (!IsTenantName(fields[0])) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the name of a tenant must have %s", kTenantNameRule));
  }
  const std::optional<Sha256Digest> digest = ParseSha256(fields[1]);
  if (!digest.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the hash must have 64 hexadecimal digits, the SHA-256 of the token; "
                        "got %d characters",
                        fields[1].size()));
  }
  TokenTable::Entry entry{fields[0], *digest};
  if (fields.size() == 3) {
    SPARSEFW_ASSIGN_OR_RETURN(entry.expiry, ParseExpiry(fields[2]));
  }
  return entry;
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(std::string_view text, std::string_view file) {
  TokenTable table;
  std::map<std::array<uint8_t, 32>, int> seen;
  const std::vector<std::string> lines = absl::StrSplit(std::string(text), '\n');
  int number = 0;
  for (std::string line : lines) {
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty() || line[0] == '#') continue;
    absl::StatusOr<Entry> entry = ParseLine(line);
    if (!entry.ok()) {
      return Invalid("CONFIGURATION_INVALID", "%s:%d: %s", file, number,
                     std::string(entry.status().message()));
    }
    const auto [earlier, added] = seen.emplace(entry->digest.bytes, number);
    if (!added) {
      return Invalid("CONFIGURATION_INVALID",
                     "%s:%d: a hash must be there once; line %d has it too", file, number,
                     earlier->second);
    }
    table.entries_.push_back(*std::move(entry));
  }
  return table;
}

const TokenTable::Entry* TokenTable::Find(const Sha256Digest& digest) const {
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (EqualInConstantTime(entry.digest, digest)) found = &entry;
  }
  return found;
}

}  // namespace sparsefw::server
