#include "server/app/observe/logging.h"

#include <algorithm>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sparsefw::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::string Logged(const std::string& format, const std::string& text) {
  CaptureStderr();
  Logger("info", format).Log(LogLevel::kInfo, "event", {{"text", text}, {"after", int64_t{7}}});
  return GetCapturedStderr();
}

// Attempts to begin a line of their own, to end a value, and to move a terminal's cursor.
const std::vector<std::string> kHostile = {
    "a\nb",          "a\r\nlevel=error",  "\" after=8 \"",          "{\"event\":\"x\"}", "\x1b[2K",
    "\xc2\x85 next", "\xe2\x80\xa8 line", "\xe2\x80\xa9",           "\xc2\x9b 2K",       "\xff\xfe",
    "tab\there",     "back\\slash",       std::string("nul\0 x", 6)};

TEST(LoggingTest, JsonIsOneObjectOnOneLineOfAscii) {
  for (const std::string& text : kHostile) {
    const std::string line = Logged("json", text);
    ASSERT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_TRUE(std::all_of(line.begin(), line.end() - 1, [](char c) {
      return c >= 0x20 && c < 0x7F;
    })) << line;
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["event"], "event");
    EXPECT_EQ(json["after"], 7);
    const bool is_utf8 = text != "\xff\xfe";
    EXPECT_EQ(json["text"] == text, is_utf8) << line;
  }
}

TEST(LoggingTest, TextStaysOneLine) {
  for (const std::string& text : kHostile) {
    const std::string line = Logged("text", text);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_THAT(line, EndsWith("\" after=7\n"));
    for (const char* control : {"\r", "\x1b", "\xc2\x85", "\xc2\x9b", "\xe2\x80\xa8"}) {
      EXPECT_EQ(line.find(control), std::string::npos) << line;
    }
  }
  EXPECT_THAT(Logged("text", "jobs/1"), HasSubstr(" text=jobs/1 "));
  EXPECT_THAT(Logged("text", "übung"), HasSubstr("text=\"übung\""));
  EXPECT_THAT(Logged("text", "the machine's \\'"), HasSubstr(R"(text="the machine's \\'")"));
}

TEST(LoggingTest, NumbersThatJsonLacks) {
  CaptureStderr();
  Logger("info", "json")
      .Log(LogLevel::kInfo, "event", {{"x", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_TRUE(nlohmann::json::parse(GetCapturedStderr())["x"].is_null());
}

TEST(LoggingTest, LongTextsAreCut) {
  EXPECT_LT(Logged("json", std::string(5000, 'x')).size(), 1300U);
}

}  // namespace
}  // namespace sparsefw::server
