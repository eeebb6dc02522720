// safetensors files byte by byte, right or wrong.
#ifndef SPARSEFW_TESTS_CORE_IO_FILE_BUILDER_H_
#define SPARSEFW_TESTS_CORE_IO_FILE_BUILDER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsefw {

inline std::string LengthField(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>((length >> (8 * i)) & 0xFF));
  return bytes;
}

inline std::string FileOf(std::string_view header, std::string_view data) {
  return LengthField(header.size()) + std::string(header) + std::string(data);
}

}  // namespace sparsefw

#endif  // SPARSEFW_TESTS_CORE_IO_FILE_BUILDER_H_
