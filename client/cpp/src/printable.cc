#include "sparsefw/client/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace sparsefw::client {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The first character of `text`, which is not empty. Neither overlong forms nor surrogates are
// UTF-8: some terminals decode them all the same.
Character Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xC2 && lead < 0xE0   ? 2
                       : lead >= 0xE0 && lead < 0xF0 ? 3
                       : lead >= 0xF0 && lead < 0xF5 ? 4
                                                     : 0;
  if (bytes == 0 || text.size() < bytes) return {lead, 1, false};
  uint32_t code = lead & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {lead, 1, false};
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const uint32_t least = bytes == 3 ? 0x800 : bytes == 4 ? 0x10000 : 0x80;
  if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {lead, 1, false};
  return {code, bytes, true};
}

bool IsControl(uint32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

// Marks of direction, which show text in another order than it has, and separators of lines.
bool Misleads(uint32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string Escape(const Character& character) {
  switch (character.code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      if (character.valid && character.code >= 0x80) {
        return absl::StrFormat("\\u%04x", character.code);
      }
      return absl::StrFormat("\\x%02x", character.code);
  }
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const Character character = Decode(text);
    if (!character.valid || IsControl(character.code) || Misleads(character.code)) {
      printable += Escape(character);
    } else {
      printable += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return printable;
}

}  // namespace sparsefw::client
