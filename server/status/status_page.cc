#include "server/status/status_page.h"

#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "server/identity/sha256.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kTemplate =
#include "status_html.inc"
    ;

// 'sha256-...' of what stands between the two.
std::string HashBetween(std::string_view begin, std::string_view end) {
  const size_t first = kTemplate.find(begin) + begin.size();
  const std::string_view inside = kTemplate.substr(first, kTemplate.find(end, first) - first);
  const Sha256Digest digest = Sha256(inside);
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.bytes.data()),
                                digest.bytes.size());
  return absl::StrFormat("'sha256-%s'", absl::Base64Escape(bytes));
}

}  // namespace

StatusPage MakeStatusPage() {
  return {
      std::string(kTemplate),
      absl::StrFormat("default-src 'none'; style-src %s; script-src %s; connect-src 'self'; "
                      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                      HashBetween("<style>", "</style>"), HashBetween("<script>", "</script>"))};
}

std::map<std::string, MetricsEndpoint::Page, std::less<>> StatusPages(
    std::function<std::string()> document) {
  StatusPage page = MakeStatusPage();
  const auto html = [html = std::move(page.html)] { return html; };
  return {{"/", {"text/html; charset=utf-8", std::move(page.policy), html}},
          {"/status.json", {"application/json", "", std::move(document)}}};
}

}  // namespace sparsefw::server
