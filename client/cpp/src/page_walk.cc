#include "client/cpp/src/page_walk.h"

#include "absl/strings/str_format.h"
#include "sparsefw/reason.h"

namespace sparsefw::client::internal {

absl::Status PageWalk::Take(int64_t entries, int64_t bytes, const std::string& next_token) {
  if (next_token.empty()) return absl::OkStatus();
  ++pages_;
  bytes_ += bytes;
  empty_ = entries == 0 ? empty_ + 1 : 0;
  std::string why;
  if (next_token == token_) {
    why = "a page has the token of the page before it";
  } else if (empty_ >= kMostEmptyPages) {
    why = absl::StrFormat("%d pages in a row are empty", empty_);
  } else if (pages_ >= kMostPages) {
    why = absl::StrFormat("it is longer than %d pages", kMostPages);
  } else if (bytes_ > kMostBytes) {
    why = absl::StrFormat("it is longer than %d bytes", kMostBytes);
  }
  token_ = next_token;
  if (why.empty()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInternal, "PROTOCOL",
                "%s: the server's list must come to an end; %s", method_, why);
}

}  // namespace sparsefw::client::internal
