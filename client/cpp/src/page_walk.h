// When a list that a server gives page by page has no end.
#ifndef SPARSEFW_CLIENT_SRC_PAGE_WALK_H_
#define SPARSEFW_CLIENT_SRC_PAGE_WALK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sparsefw::client::internal {

// Follows the pages of one list. A server may give short and empty pages, so only their number,
// the bytes of all, and a token that does not move tell that it never comes to an end.
class PageWalk {
 public:
  static constexpr int64_t kMostEmptyPages = 1000;  // in a row
  static constexpr int64_t kMostPages = 10'000;
  static constexpr int64_t kMostBytes = int64_t{1} << 30;

  explicit PageWalk(std::string_view method) : method_(method) {}

  // After a page of `entries` in `bytes`. Errors: Internal (PROTOCOL).
  absl::Status Take(int64_t entries, int64_t bytes, const std::string& next_token);

 private:
  const std::string method_;
  std::string token_;
  int64_t pages_ = 0;
  int64_t empty_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_PAGE_WALK_H_
