#include "server/tensors/store/page_token.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

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

}  // namespace
}  // namespace sparsefw::server
