// Ids of tensors and their files, which cannot be guessed.
#ifndef SPARSEFW_SERVER_TENSORS_RANDOM_ID_H_
#define SPARSEFW_SERVER_TENSORS_RANDOM_ID_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sparsefw::server {

inline constexpr size_t kIdLength = 32;

// 128 random bits in lower-case hexadecimal.
// Errors: Internal  the system has no random numbers
absl::StatusOr<std::string> RandomId();

bool IsId(std::string_view text);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_RANDOM_ID_H_
