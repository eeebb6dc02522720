// Sizes as people write them.
#ifndef SPARSEFW_SERVER_IDENTITY_BYTE_SIZE_H_
#define SPARSEFW_SERVER_IDENTITY_BYTE_SIZE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sparsefw::server {

// "8GiB", "512MiB", "1000000", "2GB"; at least 1.
std::optional<int64_t> ParseBytes(std::string_view text);

// In the largest binary unit that divides it: "8GiB", "1500"; what ParseBytes reads.
std::string FormatBytes(int64_t bytes);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_BYTE_SIZE_H_
