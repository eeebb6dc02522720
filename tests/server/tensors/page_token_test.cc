#include "server/tensors/store/page_token.h"

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/tensors/store/age_table.h"

namespace sparsefw::server {
namespace {

struct Entry {
  struct Origin {
    std::string id;
  };
  uint64_t number() const { return value; }
  Origin origin() const { return {std::to_string(value)}; }

  uint64_t value;
};

TEST(PageToken, RoundTrip) {
  for (const uint64_t position :
       {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_EQ(DecodePageToken(EncodePageToken(position, "salt"), "salt"), position);
  }
}

TEST(PageToken, AnythingElseIsRefused) {
  const std::string token = EncodePageToken(42, "salt");
  EXPECT_EQ(DecodePageToken(token, "pepper"), std::nullopt) << "of another run of the server";
  EXPECT_EQ(DecodePageToken("", "salt"), std::nullopt);
  EXPECT_EQ(DecodePageToken("0", "salt"), std::nullopt);
  EXPECT_EQ(DecodePageToken(token + "0", "salt"), std::nullopt);
  EXPECT_EQ(DecodePageToken(token.substr(1), "salt"), std::nullopt);
  EXPECT_EQ(DecodePageToken(std::string(24, 'z'), "salt"), std::nullopt);
  EXPECT_EQ(DecodePageToken(std::string(10'000, '7'), "salt"), std::nullopt);
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == '3' ? '4' : '3';
    EXPECT_EQ(DecodePageToken(changed, "salt"), std::nullopt) << i;
  }
}

// Others wait for the lock of the table while a page looks for its entries.
TEST(AgeTableTest, APageLooksAtABoundedNumberOfEntries) {
  constexpr uint64_t kEntries = 100'000;
  AgeTable<Entry> table;
  for (uint64_t i = 1; i <= kEntries; ++i) table.Insert(std::make_shared<Entry>(Entry{i}));
  int64_t looks = 0;
  const auto chooses = [&looks](const Entry& entry) {
    ++looks;
    return entry.value == kEntries || entry.value == kEntries - 1 || entry.value == 1;
  };
  std::vector<uint64_t> seen;
  std::optional<uint64_t> before = kEntries + 1;
  while (before.has_value()) {
    looks = 0;
    const auto page = table.List(1, *before, chooses);
    EXPECT_LE(looks, 20'001);
    for (const auto& entry : page.entries) seen.push_back(entry->value);
    before = page.next;
  }
  EXPECT_EQ(seen, (std::vector<uint64_t>{kEntries, kEntries - 1, 1}));
}

}  // namespace
}  // namespace sparsefw::server
