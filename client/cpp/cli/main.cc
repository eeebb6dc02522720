// sparsefw-cli: prunes layers on a server.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/credentials.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/options.h"
#include "client/cpp/cli/output/progress.h"
#include "client/cpp/cli/trace.h"

namespace {

int TerminalColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// https://no-color.org: set and not empty.
bool WantsNoColor() {
  const char* no_color = std::getenv("NO_COLOR");  // NOLINT: no other thread yet
  return no_color != nullptr && *no_color != '\0';
}

// A terminal that can clear a line.
bool HasTerminal() {
  const char* term = std::getenv("TERM");  // NOLINT: no other thread yet
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

int Main(int argc, char** argv) {
  using namespace sparsefw::cli;  // NOLINT: this function is the program
  const bool terminal = HasTerminal();
  const Console console{.out = std::cout,
                        .err = std::cerr,
                        .err_is_terminal = terminal,
                        .color = terminal && !WantsNoColor(),
                        .columns = TerminalColumns};
  const auto command = ParseCommandLine(argc, argv);
  const absl::Status status = command.ok() ? RunCommand(*command, console) : command.status();
  std::cout << std::flush;
  if (!status.ok())
    std::cerr << "sparsefw-cli: " << MessageOf(status) << TraceNote(status) << std::endl;
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
