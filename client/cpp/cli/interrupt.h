// Ctrl-C: the first asks, the second quits.
#ifndef SPARSEFW_CLIENT_CLI_INTERRUPT_H_
#define SPARSEFW_CLIENT_CLI_INTERRUPT_H_

#include <csignal>
#include <functional>
#include <thread>

namespace sparsefw::cli {

// While it lives, the first SIGINT or SIGTERM calls `first` on a thread of its
// own and the second ends the program at once. Make it before any other thread
// starts: threads inherit the blocked signals.
class Interrupt {
 public:
  explicit Interrupt(std::function<void()> first);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  void Run();

  const std::function<void()> first_;
  sigset_t signals_;
  sigset_t before_;
  int quit_ = -1;  // eventfd
  std::thread thread_;
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_INTERRUPT_H_
