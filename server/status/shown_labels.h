// The labels of a job that the status page shows.
#ifndef SPARSEFW_SERVER_STATUS_SHOWN_LABELS_H_
#define SPARSEFW_SERVER_STATUS_SHOWN_LABELS_H_

#include <cstdint>
#include <map>
#include <string>

namespace sparsefw::server {

struct ShownLabels {
  std::map<std::string, std::string> labels;
  int64_t left_out = 0;
};

// Bytes of keys and values that are shown of one job; the longest label alone has 320.
inline constexpr size_t kShownLabelBytes = 512;

// The labels in the order of their keys, without those of sparsefw-cli. A label without room is
// only counted.
ShownLabels ShowLabels(const std::map<std::string, std::string>& labels);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STATUS_SHOWN_LABELS_H_
