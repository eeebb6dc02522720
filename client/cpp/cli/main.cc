// sparsefw-cli: prunes layers on a server.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <system_error>

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/options.h"
#include "client/cpp/cli/output/progress.h"
#include "client/cpp/cli/trace.h"
#include "sparsefw/client/printable.h"

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

// Descriptors that are closed would become those of connections and files, with the output in them.
// Nothing can be written to the stand-ins either.
void KeepStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    [[maybe_unused]] const int lowest = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// OK where all that was printed has arrived: a script would take a part of it for the whole.
absl::Status FinishOutput() {
  errno = 0;
  std::cout << std::flush;
  if (std::cout) {
    // Some file systems say it only when a descriptor is closed.
    const int copy = dup(STDOUT_FILENO);
    if (copy < 0 || close(copy) == 0) return absl::OkStatus();
  }
  const std::string why = errno == 0 ? "" : ": " + std::system_category().message(errno);
  return sparsefw::cli::FileError("standard output: cannot be written" + why);
}

void PrintError(const absl::Status& status) {
  using namespace sparsefw::cli;  // NOLINT: this function is the program
  if (status.ok()) return;
  std::cerr << "sparsefw-cli: " << sparsefw::client::Printable(std::string(status.message()))
            << TraceNote(status) << std::endl;
}

int Main(int argc, char** argv) {
  using namespace sparsefw::cli;  // NOLINT: this function is the program
  KeepStandardDescriptors();
  // An error is one line: gRPC logs of its own come only where somebody asks for them.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // NOLINT: no other thread yet
  // Beyond a limit of file sizes a write fails with EFBIG, which is reported like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const bool terminal = HasTerminal();
  const Console console{.out = std::cout,
                        .err = std::cerr,
                        .err_is_terminal = terminal,
                        .color = terminal && !WantsNoColor(),
                        .columns = TerminalColumns};
  const auto command = ParseCommandLine(argc, argv);
  const absl::Status status = command.ok() ? RunCommand(*command, console) : command.status();
  const absl::Status output = FinishOutput();
  PrintError(status);
  PrintError(output);
  return static_cast<int>(ExitCodeOf(status.ok() ? output : status));
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
