#include "core/src/base/traceparent.h"

#include <string>

#include "gtest/gtest.h"

namespace sparsefw {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kSpan = "00f067aa0ba902b7";

TEST(TraceparentTest, OfVersionZero) {
  EXPECT_TRUE(IsTraceparent("00-" + kTrace + "-" + kSpan + "-01"));
  EXPECT_TRUE(IsTraceparent("00-" + kTrace + "-" + kSpan + "-00"));
  EXPECT_TRUE(IsTraceparent("00-" + kTrace + "-" + kSpan + "-ff"));
}

TEST(TraceparentTest, AnythingElseIsNone) {
  const std::string good = "00-" + kTrace + "-" + kSpan + "-01";
  for (const std::string& bad :
       {std::string(), std::string("00"), "01-" + kTrace + "-" + kSpan + "-01", good + "-x",
        good + "\n", " " + good, "00-" + std::string(32, '0') + "-" + kSpan + "-01",
        "00-" + kTrace + "-" + std::string(16, '0') + "-01", good.substr(1),
        "00-" + kTrace.substr(1) + "-0" + kSpan + "-01"}) {
    EXPECT_FALSE(IsTraceparent(bad)) << bad;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'A', 'g', '\n', '\0', '"', '\xff'}) {
      std::string bad = good;
      bad[i] = c;
      EXPECT_FALSE(IsTraceparent(bad)) << i;
    }
  }
}

}  // namespace
}  // namespace sparsefw
