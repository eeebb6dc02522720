// The JSON header of a safetensors file, from bytes that nobody vouches for.
#ifndef SPARSEFW_CORE_SRC_IO_SAFETENSORS_HEADER_H_
#define SPARSEFW_CORE_SRC_IO_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparsefw::io {

struct HeaderEntry {
  std::string name;
  std::string dtype_name;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // offsets from the end of the header
  int64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // as they stand in the JSON
  std::vector<size_t> by_name;       // indices of entries, sorted by name
  std::map<std::string, std::string> metadata;
};

// Parses as a stream of events: no document is built and nothing recurses, so
// neither depth nor breadth of the JSON can hurt. `path` begins every message.
// Errors: InvalidArgument (FILE_INVALID)  everything that one header can be
//         wrong about by itself; ResourceExhausted  no memory for it
absl::StatusOr<Header> ParseHeader(std::string_view path, std::string_view json);

// Sizes, and that the entries fill `data_bytes` without overlap or hole.
// Errors: InvalidArgument (FILE_INVALID)
absl::Status CheckLayout(std::string_view path, const Header& header, int64_t data_bytes);

}  // namespace sparsefw::io

#endif  // SPARSEFW_CORE_SRC_IO_SAFETENSORS_HEADER_H_
