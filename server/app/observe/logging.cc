#include "server/app/observe/logging.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "spdlog/logger.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace sparsefw::server {
namespace {

using Fields = std::span<const Logger::Field>;

struct Level {
  std::string_view name;
  spdlog::level::level_enum of_sink;
};
constexpr Level kLevels[] = {{"debug", spdlog::level::debug},
                             {"info", spdlog::level::info},
                             {"warning", spdlog::level::warn},
                             {"error", spdlog::level::err}};

const Level& Of(LogLevel level) { return kLevels[static_cast<size_t>(level)]; }

LogLevel ParseLevel(std::string_view name) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kWarning, LogLevel::kError}) {
    if (Of(level).name == name) return level;
  }
  return LogLevel::kInfo;
}

std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

// A client may send names of megabytes.
constexpr size_t kMostTextBytes = 1024;
std::string Cut(const std::string& text) {
  if (text.size() <= kMostTextBytes) return text;
  return absl::StrFormat("%s... (%d bytes)", text.substr(0, kMostTextBytes), text.size());
}

// In UTF-8: control characters beyond ASCII, and separators of lines and paragraphs.
bool HasWideControls(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (byte(i) == 0xC2 && byte(i + 1) >= 0x80 && byte(i + 1) <= 0x9F) return true;
    if (text.substr(i, 2) == "\xE2\x80" && i + 2 < text.size() &&
        (byte(i + 2) == 0xA8 || byte(i + 2) == 0xA9)) {
      return true;
    }
  }
  return false;
}

// Escapes text from clients, so that an event stays one line.
std::string Quoted(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-./:,[]%+") == std::string::npos;
  if (plain) return text;
  const std::string escaped =
      HasWideControls(text) ? absl::CEscape(text) : absl::Utf8SafeCEscape(text);
  // Within these quotes an apostrophe needs no escape. A backslash before it is of a pair.
  return absl::StrFormat("\"%s\"",
                         absl::StrReplaceAll(escaped, {{R"(\\)", R"(\\)"}, {R"(\')", "'"}}));
}

std::string TextLine(LogLevel level, std::string_view event, Fields fields) {
  std::string line = absl::StrFormat("%s %s %s", Now(), Of(level).name, event);
  for (const auto& [key, value] : fields) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      absl::StrAppendFormat(&line, " %s=%s", key, Quoted(Cut(*text)));
    } else if (const auto* number = std::get_if<int64_t>(&value)) {
      absl::StrAppendFormat(&line, " %s=%d", key, *number);
    } else {
      absl::StrAppendFormat(&line, " %s=%.6g", key, std::get<double>(value));
    }
  }
  return line;
}

std::string JsonLine(LogLevel level, std::string_view event, Fields fields) {
  nlohmann::ordered_json line = {{"ts", Now()}, {"level", Of(level).name}, {"event", event}};
  for (const auto& [key, value] : fields) {
    const std::string name(key);
    if (const auto* text = std::get_if<std::string>(&value)) {
      line[name] = Cut(*text);
    } else {
      std::visit([&](const auto& content) { line[name] = content; }, value);
    }
  }
  return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Logger::Logger(std::string_view level, std::string_view format)
    : sink_(std::make_shared<spdlog::logger>("sparsefw",
                                             std::make_shared<spdlog::sinks::stderr_sink_mt>())),
      json_(format == "json") {
  sink_->set_pattern("%v");
  sink_->set_level(Of(ParseLevel(level)).of_sink);
  sink_->flush_on(spdlog::level::debug);
}

void Logger::Log(LogLevel level, std::string_view event, Fields fields) {
  if (!sink_->should_log(Of(level).of_sink)) return;
  const std::string line = json_ ? JsonLine(level, event, fields) : TextLine(level, event, fields);
  sink_->log(Of(level).of_sink, "{}", line);
}

}  // namespace sparsefw::server
