// Files that are whole or not there, whatever ends the program.
#ifndef SPARSEFW_CLIENT_CLI_MODEL_FILES_H_
#define SPARSEFW_CLIENT_CLI_MODEL_FILES_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace sparsefw::cli {

using Json = nlohmann::ordered_json;

// Errors (exit code 2) begin with the path.
absl::StatusOr<std::vector<std::byte>> ReadWholeFile(const std::filesystem::path& path);
absl::StatusOr<Json> ReadJsonFile(const std::filesystem::path& path);

// Written beside its place, brought to the disk, then renamed.
absl::Status WriteWholeFile(const std::filesystem::path& path, std::span<const std::byte> bytes);
absl::Status WriteJsonFile(const std::filesystem::path& path, const Json& json);

// "<path>: cannot be <action>: <the error in words>"; exit code 2. `error` is an errno.
absl::Status PathError(const std::filesystem::path& path, std::string_view action, int error);

// `path` is `folder` or in it.
bool IsWithin(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_MODEL_FILES_H_
