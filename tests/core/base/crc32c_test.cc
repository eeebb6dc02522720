#include "sparsefw/crc32c.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace sparsefw {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// RFC 3720, B.4.
TEST(Crc32cTest, PublishedVectors) {
  std::array<std::byte, 32> data{};
  EXPECT_EQ(Crc32c(data), 0x8A9136AAU);
  data.fill(std::byte{0xFF});
  EXPECT_EQ(Crc32c(data), 0x62A8AB43U);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Crc32c(data), 0x46DD794EU);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(Crc32c(data), 0x113FDB5CU);
  const std::array<uint8_t, 48> read_command = {
      0x01, 0xC0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
      0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0,    0};
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(read_command))), 0xD9963A56U);
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xE3069283U);
}

TEST(Crc32cTest, NothingIsZero) { EXPECT_EQ(Crc32c({}), 0U); }

TEST(Crc32cTest, PiecesGiveTheWhole) {
  std::vector<std::byte> data(1000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7919 % 251);
  const uint32_t whole = Crc32c(data);
  for (size_t cut = 0; cut <= data.size(); cut += 37) {
    const std::span<const std::byte> span(data);
    EXPECT_EQ(ExtendCrc32c(Crc32c(span.first(cut)), span.subspan(cut)), whole) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace sparsefw
