// SHA-256 of tokens.
#ifndef SPARSEFW_SERVER_IDENTITY_SHA256_H_
#define SPARSEFW_SERVER_IDENTITY_SHA256_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sparsefw::server {

// Has no ==, which would stop at the first difference; EqualInConstantTime compares.
struct Sha256Digest {
  std::array<uint8_t, 32> bytes = {};
};

Sha256Digest Sha256(std::string_view data);

// 64 hexadecimal digits of either case; nothing otherwise.
std::optional<Sha256Digest> ParseSha256(std::string_view hex);

// Takes the same time wherever the two differ.
bool EqualInConstantTime(const Sha256Digest& a, const Sha256Digest& b);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_SHA256_H_
