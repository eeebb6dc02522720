#include "client/cpp/cli/flags/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace sparsefw::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kNameColumns = 26;
constexpr char kUngrouped[] = "Options";  // CLI11's default

std::string Entry(const std::string& name, const std::string& description) {
  std::string text;
  std::string line = "  " + name;
  const auto end_line = [&] {
    text += line + "\n";
    line.clear();
  };
  if (line.size() + 2 > kNameColumns) end_line();
  line.resize(kNameColumns, ' ');
  bool empty = true;
  for (const std::string& word :
       std::vector<std::string>(absl::StrSplit(description, ' ', absl::SkipEmpty()))) {
    if (!empty && line.size() + 1 + word.size() > kColumns) {
      end_line();
      line.resize(kNameColumns, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  end_line();
  return text;
}

class Formatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return app->get_description() + "\n" + make_usage(app, std::move(name)) +
           make_positionals(app) + Groups(*app) + make_subcommands(app, mode) + Footer(*app);
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = make_option_name(option, is_positional);
    if (!is_positional) {
      name = absl::StrReplaceAll(name, {{",", ", "}});
      if (option->get_type_size() != 0) name += " " + option->get_type_name();
    }
    std::string description = make_option_desc(option);
    if (!is_positional && option->get_required()) description += " (required)";
    return Entry(name, description);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return Entry(command->get_name(), command->get_description());
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    (void)name;
    std::string usage = "\nUsage: ";
    if (app->get_parent() != nullptr) usage += app->get_parent()->get_name() + " ";
    usage += app->get_name();
    for (const CLI::Option* option : app->get_options({})) {
      if (option->nonpositional() && option->get_required()) {
        usage += " " + option->get_name() + " " + option->get_type_name();
      }
    }
    for (const CLI::Option* option : app->get_options({})) {
      if (option->get_positional()) usage += " " + option->get_name(true);
    }
    usage += app->get_subcommands({}).empty() ? " [FLAGS]" : " COMMAND [FLAGS]";
    return usage + "\n";
  }

 private:
  std::string Groups(const CLI::App& app) const {
    std::vector<std::string> groups = app.get_groups();
    if (const CLI::Option* help = app.get_help_ptr()) {
      const auto last = std::find(groups.begin(), groups.end(), help->get_group());
      if (last != groups.end()) std::rotate(last, last + 1, groups.end());
    }
    std::string text;
    for (const std::string& group : groups) {
      const auto options = app.get_options([&group](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (!options.empty()) text += make_group(group, false, options);
    }
    return text;
  }
  static std::string Footer(const CLI::App& app) {
    return app.get_footer().empty() ? "" : app.get_footer() + "\n";
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> HelpFormatter() { return std::make_shared<Formatter>(); }

void GroupFlags(CLI::App& app, const std::string& group) {
  for (CLI::Option* option : app.get_options({})) {
    if (option->get_group() == kUngrouped && option != app.get_help_ptr()) option->group(group);
  }
}

}  // namespace sparsefw::cli
