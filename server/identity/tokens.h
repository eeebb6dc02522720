// The tokens that a server accepts: --tokens FILE.
//
//   # comment
//   tenant:sha256-hex-of-token
//   tenant:sha256-hex-of-token:2027-01-31T12:00:00Z      not after that
//
// A tenant may have several tokens, so that one can be replaced without a gap.
#ifndef SPARSEFW_SERVER_IDENTITY_TOKENS_H_
#define SPARSEFW_SERVER_IDENTITY_TOKENS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/identity/sha256.h"

namespace sparsefw::server {

// Immutable.
class TokenTable {
 public:
  struct Entry {
    std::string tenant;
    Sha256Digest digest;
    absl::Time expiry = absl::InfiniteFuture();
  };

  // `file` is for messages, which never show the text of a line: it may be a token
  // that was pasted where its hash belongs.
  // Errors: InvalidArgument (CONFIGURATION_INVALID) with file, line and rule: a line
  //         of another form, a hash that is there twice
  static absl::StatusOr<TokenTable> Parse(std::string_view text, std::string_view file);

  // Null where no token has this digest. Takes the same time for every digest.
  const Entry* Find(const Sha256Digest& digest) const;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_TOKENS_H_
