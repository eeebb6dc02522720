// SIGINT and SIGTERM: the first one asks a command to stop, the second one ends the program. One
// that was ignored at the start stays so: a script's shell ignores SIGINT for its background
// commands.
#ifndef SPARSEFW_CLIENT_CLI_INTERRUPT_H_
#define SPARSEFW_CLIENT_CLI_INTERRUPT_H_

#include <csignal>
#include <functional>
#include <thread>

namespace sparsefw::cli {

// While it lives, the first SIGINT or SIGTERM calls `first` with its number on a
// thread of its own; the second clears the live line of a terminal and ends the
// program at once. Make it before any other thread starts: threads inherit the
// blocked signals.
class Interrupt {
 public:
  explicit Interrupt(std::function<void(int)> first);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  void Run();

  const std::function<void(int)> first_;
  sigset_t signals_;
  sigset_t before_;
  int quit_ = -1;  // eventfd
  std::thread thread_;
};

// Whoever reads the output may be gone: what is under way is finished and cleaned up all the same,
// and the output that was lost is an error.
void IgnoreClosedPipes();

// Ends the program by the signal's default action, as if it were not handled:
// a shell sees 128 + number. For `first` of commands that only watch.
[[noreturn]] void EndBySignal(int number);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_INTERRUPT_H_
