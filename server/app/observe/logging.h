// The server's log on standard error, one line per event.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_LOGGING_H_
#define SPARSEFW_SERVER_APP_OBSERVE_LOGGING_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace spdlog {
class logger;
}

namespace sparsefw::server {

enum class LogLevel { kDebug, kInfo, kWarning, kError };  // logging.cc has their names

// Thread-safe.
class Logger {
 public:
  struct Field {
    std::string_view key;
    std::variant<std::string, int64_t, double> value;
  };

  // level: debug, info, warning, error; format: text, json.
  Logger(std::string_view level, std::string_view format);

  // text: 2026-01-31T12:00:00.000Z info event key=value key="two words"
  // json: {"ts":"...","level":"info","event":"...","key":"value"}, in ASCII
  // Always one line, whatever the texts hold. Texts longer than 1 KiB are cut. Keys differ.
  void Log(LogLevel level, std::string_view event, std::span<const Field> fields);
  void Log(LogLevel level, std::string_view event, std::initializer_list<Field> fields = {}) {
    Log(level, event, std::span<const Field>(fields.begin(), fields.size()));
  }

 private:
  std::shared_ptr<spdlog::logger> sink_;
  bool json_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_LOGGING_H_
