// Numbers in messages.
#ifndef SPARSEFW_CORE_SRC_BASE_NUMBER_TEXT_H_
#define SPARSEFW_CORE_SRC_BASE_NUMBER_TEXT_H_

#include <array>
#include <charconv>
#include <string>

namespace sparsefw {

// The shortest text that is read back as the same value: %g would print
// 1.0000001 as 1, in a message that says it must be at most 1.
inline std::string NumberText(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string("?");
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_BASE_NUMBER_TEXT_H_
