// sparsefw-cli: prunes layers on a server.
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/options.h"
#include "client/cpp/cli/progress.h"

namespace {

int TerminalColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int Main(int argc, char** argv) {
  using namespace sparsefw::cli;  // NOLINT: this function is the program
  const Console console{std::cout, std::cerr, isatty(STDERR_FILENO) == 1, TerminalColumns()};
  const auto command = ParseCommandLine(argc, argv);
  const absl::Status status = command.ok() ? RunCommand(*command, console) : command.status();
  std::cout << std::flush;
  if (!status.ok()) std::cerr << "sparsefw-cli: " << status.message() << std::endl;
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
