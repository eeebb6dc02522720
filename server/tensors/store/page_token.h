// Tokens that continue a listing; clients cannot make sense of them.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_PAGE_TOKEN_H_
#define SPARSEFW_SERVER_TENSORS_STORE_PAGE_TOKEN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sparsefw::server {

// `salt` makes the tokens of one list worthless with another, where the same position means another
// entry.
std::string EncodePageToken(uint64_t position, std::string_view salt);
// Nothing when the token was not made by EncodePageToken with this salt.
std::optional<uint64_t> DecodePageToken(std::string_view token, std::string_view salt);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_PAGE_TOKEN_H_
