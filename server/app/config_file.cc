#include "server/app/config_file.h"

#include <exception>
#include <istream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace sparsefw::server {
namespace {

[[noreturn]] void RefuseLine(absl::string_view what, absl::string_view rule,
                             absl::string_view got) {
  throw CLI::ConfigError(absl::StrFormat("--config: %s must %s; got %s", what, rule, got),
                         CLI::ExitCodes::ConfigError);
}

// `text`: all after the "=", without blanks around it.
void CheckValue(absl::string_view name, absl::string_view text) {
  constexpr absl::string_view kComment = "have a value without \"#\", which begins a comment";
  if (!text.empty() && (text[0] == '"' || text[0] == '\'')) {
    const size_t end = text.find(text[0], 1);
    if (end == text.npos) RefuseLine(name, "have a value with two quotes", text);
    if (text.substr(0, end).find('#') != text.npos) RefuseLine(name, kComment, text);
    if (text.substr(0, end).find('\\') != text.npos) {
      RefuseLine(name, "have a value without backslashes", text);
    }
    const absl::string_view rest = absl::StripAsciiWhitespace(text.substr(end + 1));
    if (!rest.empty() && rest[0] != '#') RefuseLine(name, "have one value", text);
    return;
  }
  const size_t comment = text.find('#');
  const absl::string_view value = absl::StripAsciiWhitespace(text.substr(0, comment));
  if (value.empty()) RefuseLine(name, "have a value", "none");
  if (comment != text.npos && !absl::ascii_isspace(static_cast<unsigned char>(text[comment - 1]))) {
    RefuseLine(name, kComment, text);
  }
  if (value[0] == '[') RefuseLine(name, "have one value, in quotes if it has a bracket", text);
  if (value.find_first_of(" \t,\"'") != value.npos) {
    RefuseLine(name, "have one value, in quotes if it has blanks or commas", text);
  }
}

// CLI11 takes the last of several values, cuts a value at blanks, commas and "#", joins lines from
// a "[" on, and takes a key without a value for true. So only lines that can be read in one way
// come to it.
class OneValueEach final : public CLI::ConfigTOML {
  // An iterator over the buffer does not set the stream's state: an error is an exception.
  static std::string Read(std::istream& input) {
    try {
      return {std::istreambuf_iterator<char>(input), {}};
    } catch (const std::exception&) {
      throw CLI::ConfigError("--config: the file cannot be read", CLI::ExitCodes::ConfigError);
    }
  }
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string text = Read(input);
    std::set<absl::string_view> names;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      line = absl::StripAsciiWhitespace(line);
      if (line.empty() || line[0] == '#' || line[0] == ';') continue;
      const size_t equals = line.find('=');
      const absl::string_view name = absl::StripAsciiWhitespace(line.substr(0, equals));
      if (equals == line.npos || name.empty() || name[0] == '-' ||
          !absl::c_all_of(name, [](unsigned char c) {
            return absl::ascii_isalnum(c) || c == '-' || c == '_';
          })) {
        RefuseLine("a line", "be key = value, or begin with #", line);
      }
      CheckValue(name, absl::StripAsciiWhitespace(line.substr(equals + 1)));
      if (!names.insert(name).second) RefuseLine(name, "have one value", "several lines");
    }
    std::istringstream again(text);
    return CLI::ConfigTOML::from_config(again);
  }
};

}  // namespace

std::shared_ptr<CLI::Config> ConfigFileReader() { return std::make_shared<OneValueEach>(); }

}  // namespace sparsefw::server
