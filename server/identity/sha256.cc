#include "server/identity/sha256.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace sparsefw::server {

Sha256Digest Sha256(std::string_view data) {
  Sha256Digest digest;
  static_assert(sizeof(digest.bytes) == SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest.bytes.data());
  return digest;
}

std::optional<Sha256Digest> ParseSha256(std::string_view hex) {
  Sha256Digest digest;
  if (hex.size() != 2 * digest.bytes.size() || !std::ranges::all_of(hex, &absl::ascii_isxdigit)) {
    return std::nullopt;
  }
  std::ranges::copy(absl::HexStringToBytes({hex.data(), hex.size()}), digest.bytes.begin());
  return digest;
}

bool EqualInConstantTime(const Sha256Digest& a, const Sha256Digest& b) {
  return CRYPTO_memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

}  // namespace sparsefw::server
