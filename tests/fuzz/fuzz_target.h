// The entry point of libFuzzer, which a fuzz target implements.
#ifndef SPARSEFW_TESTS_FUZZ_FUZZ_TARGET_H_
#define SPARSEFW_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// Returns 0. A broken invariant ends the program, which libFuzzer reports.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sparsefw::fuzz {

inline void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "invariant broken: %s\n", what);
  std::abort();
}

// Takes an input apart, piece by piece; zeros and empty texts when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() { return rest_.empty() ? uint8_t{0} : static_cast<uint8_t>(Text(1)[0]); }
  // Two bytes, little-endian.
  uint16_t Short() {
    const unsigned low = Byte();
    return static_cast<uint16_t>(low | static_cast<unsigned>(Byte()) << 8U);
  }
  std::string_view Text(size_t size) {
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(text.size());
    return text;
  }

 private:
  std::string_view rest_;
};

}  // namespace sparsefw::fuzz

#endif  // SPARSEFW_TESTS_FUZZ_FUZZ_TARGET_H_
