#include "sparsefw/client/printable.h"

#include <string>

#include "gtest/gtest.h"

namespace sparsefw::client {
namespace {

TEST(PrintableTest, TextStaysAsItIs) {
  for (const char* text : {"", "jobs/0123", "a \\n b", "\xc3\xbc", "\xe4\xb8\xad\xe6\x96\x87",
                           "\xf0\x9f\x99\x82", "|WX|^2 < 5 %"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, ControlsAreEscaped) {
  EXPECT_EQ(Printable("\x1b]0;owned\a\x1b[2J"), "\\x1b]0;owned\\x07\\x1b[2J");
  EXPECT_EQ(Printable("a\nb\r\tc\x7f"), "a\\nb\\r\\tc\\x7f");
  EXPECT_EQ(Printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m")
      << "CSI of C1";
}

TEST(PrintableTest, MarksOfDirectionAndSeparatorsAreEscaped) {
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a\\u202eb");
  EXPECT_EQ(Printable("\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8f\xd8\x9c"),
            "\\u2066\\u2069\\u200f\\u061c");
  EXPECT_EQ(Printable("\xe2\x80\xa8\xe2\x80\xa9"), "\\u2028\\u2029");
}

TEST(PrintableTest, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(Printable("\x9b"
                      "31m\xff"),
            "\\x9b31m\\xff");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(Printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b") << "overlong";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(Printable("\xe4\xb8"), "\\xe4\\xb8") << "cut";
  EXPECT_EQ(Printable("\xe4"
                      "a"),
            "\\xe4"
            "a");
}

TEST(PrintableTest, TwiceIsAsOnce) {
  const std::string all = [] {
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
    return bytes;
  }();
  EXPECT_EQ(Printable(Printable(all)), Printable(all));
}

}  // namespace
}  // namespace sparsefw::client
