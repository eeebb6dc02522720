#include "server/status/shown_labels.h"

#include <string_view>

namespace sparsefw::server {
namespace {

// Keys of the program's own notes, such as which inputs are deleted with the job.
constexpr std::string_view kCliPrefix = "sparsefw-cli.";

}  // namespace

ShownLabels ShowLabels(const std::map<std::string, std::string>& labels) {
  ShownLabels shown;
  size_t room = kShownLabelBytes;
  for (const auto& [key, value] : labels) {
    if (key.starts_with(kCliPrefix)) continue;
    const size_t bytes = key.size() + value.size();
    if (bytes > room) {
      ++shown.left_out;
      continue;
    }
    room -= bytes;
    shown.labels.emplace(key, value);
  }
  return shown;
}

}  // namespace sparsefw::server
