#include "client/cpp/cli/flags/usage_errors.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"

namespace sparsefw::cli {
namespace {

// The flag that `word` names, with or without a value in it; null where it names none.
const CLI::Option* FlagOf(const CLI::App& command, const std::string& word) {
  if (!word.starts_with('-')) return nullptr;
  return command.get_option_no_throw(word.substr(0, word.find('=')));
}

// How many letters are to be changed, added or left out to make one word of the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

absl::Status CheckValues(const CLI::App& command, const std::vector<std::string>& words) {
  std::map<const CLI::Option*, std::string> values;
  for (size_t i = 1; i < words.size(); ++i) {
    const CLI::Option* flag = FlagOf(command, words[i]);
    if (flag == nullptr || flag->get_items_expected_max() == 0) continue;
    const std::string name = words[i].substr(0, words[i].find('='));
    std::string value = words[i].substr(std::min(name.size() + 1, words[i].size()));
    if (value.empty()) {
      const std::string next = ++i < words.size() ? words[i] : "";
      if (i == words.size() || FlagOf(command, next) != nullptr) {
        return UsageError(absl::StrFormat("%s must have a value (%s); got %s", name,
                                          flag->get_type_name(),
                                          next.empty() ? "none" : "the flag " + next));
      }
      value = next;
    }
    const auto [before, first] = values.try_emplace(flag, value);
    if (first || flag->get_items_expected_max() != 1) continue;
    return UsageError(absl::StrFormat("%s must be given at most once; got \"%s\" and \"%s\"", name,
                                      before->second, value));
  }
  return absl::OkStatus();
}

absl::Status UnknownArgument(const CLI::App& command, const std::vector<std::string>& unknown) {
  const std::string help =
      absl::StrFormat("; sparsefw-cli %s --help lists them", command.get_name());
  const auto flag = std::find_if(unknown.begin(), unknown.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == '-';
  });
  if (flag == unknown.end()) {
    return UsageError(absl::StrFormat("\"%s\" belongs to no flag%s", unknown[0], help));
  }
  const std::string name = flag->substr(0, flag->find('='));
  std::string nearest;
  for (const CLI::Option* option : command.get_options({})) {
    const std::string known = option->nonpositional() ? option->get_name() : "";
    if (known.empty() || Distance(name, known) > 2) continue;
    if (nearest.empty() || Distance(name, known) < Distance(name, nearest)) nearest = known;
  }
  return UsageError(absl::StrFormat("there is no flag %s%s%s", name,
                                    nearest.empty() ? "" : "; is " + nearest + " meant?",
                                    nearest.empty() ? help : ""));
}

}  // namespace sparsefw::cli
