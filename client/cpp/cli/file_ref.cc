#include "client/cpp/cli/file_ref.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"

namespace sparsefw::cli {
namespace {

bool Exists(std::string_view path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::path(path), error);
}

FileRef Cut(std::string_view text, size_t colon) {
  return FileRef{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

}  // namespace

FileRef ParseFileRef(std::string_view text) {
  if (Exists(text)) return FileRef{std::string(text), ""};
  for (size_t colon = text.rfind(':'); colon != std::string_view::npos && colon > 0;
       colon = text.rfind(':', colon - 1)) {
    if (Exists(text.substr(0, colon))) return Cut(text, colon);
  }
  const size_t last = text.rfind(':');
  if (last == std::string_view::npos || last == 0) return FileRef{std::string(text), ""};
  return Cut(text, last);
}

bool IsTensorName(std::string_view text) {
  constexpr std::string_view kFolder = "tensors/";
  if (!text.starts_with(kFolder) || Exists(text)) return false;
  const std::string_view id = text.substr(kFolder.size());
  return !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  });
}

}  // namespace sparsefw::cli
