#include "server/rpc/runtime/traceparent.h"

#include <iterator>

namespace sparsefw::server {
namespace {

constexpr size_t kTraceDigits = 32;
constexpr size_t kSpanDigits = 16;
constexpr size_t kFlagDigits = 2;

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// An identifier of nothing but zeros means none.
bool IsIdentifier(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  constexpr std::string_view kVersion = "00-";
  constexpr size_t kTrace = kVersion.size();
  constexpr size_t kSpan = kTrace + kTraceDigits + 1;
  constexpr size_t kFlags = kSpan + kSpanDigits + 1;
  if (text.size() != kFlags + kFlagDigits || !text.starts_with(kVersion)) return false;
  if (text[kSpan - 1] != '-' || text[kFlags - 1] != '-') return false;
  return IsIdentifier(text.substr(kTrace, kTraceDigits)) &&
         IsIdentifier(text.substr(kSpan, kSpanDigits)) && IsHex(text.substr(kFlags));
}

std::string TraceparentOf(const grpc::ServerContextBase& rpc) {
  const auto [begin, end] = rpc.client_metadata().equal_range("traceparent");
  if (begin == end || std::next(begin) != end) return "";
  const std::string_view value(begin->second.data(), begin->second.size());
  return IsTraceparent(value) ? std::string(value) : "";
}

}  // namespace sparsefw::server
