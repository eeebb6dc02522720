#include "core/src/base/traceparent.h"

namespace sparsefw {
namespace {

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// An identifier of nothing but zeros means none.
bool IsIdentifier(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  return text.size() == 55 && text.starts_with("00-") && text[35] == '-' && text[52] == '-' &&
         IsIdentifier(text.substr(3, 32)) && IsIdentifier(text.substr(36, 16)) &&
         IsHex(text.substr(53));
}

}  // namespace sparsefw
