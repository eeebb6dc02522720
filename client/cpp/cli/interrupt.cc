#include "client/cpp/cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string_view>
#include <utility>

#include "client/cpp/cli/exit_code.h"

namespace sparsefw::cli {

Interrupt::Interrupt(std::function<void(int)> first)
    : first_(std::move(first)), quit_(eventfd(0, EFD_CLOEXEC)) {
  sigemptyset(&signals_);
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals_, number);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  thread_ = std::thread([this] { Run(); });
}

Interrupt::~Interrupt() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(quit_, &one, sizeof(one));
  thread_.join();
  close(quit_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupt::Run() {
  const int signals = signalfd(-1, &signals_, SFD_CLOEXEC);
  // A second thread keeps the work of the first interrupt from delaying the second.
  std::thread work;
  for (int count = 0;;) {
    pollfd wait[] = {{signals, POLLIN, 0}, {quit_, POLLIN, 0}};
    if (poll(wait, 2, -1) < 0) continue;
    if (wait[1].revents != 0) break;
    signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) != sizeof(info)) continue;
    if (++count == 1) {
      work = std::thread(first_, static_cast<int>(info.ssi_signo));
    } else {
      // Not through ProgressDisplay: its lock may be held by a blocked write.
      constexpr std::string_view kClearLine = "\r\033[K";
      if (isatty(STDERR_FILENO) == 1) {
        [[maybe_unused]] const ssize_t written =
            write(STDERR_FILENO, kClearLine.data(), kClearLine.size());
      }
      _exit(static_cast<int>(ExitCode::kNoMask));
    }
  }
  if (work.joinable()) work.join();
  close(signals);
}

void IgnoreClosedPipes() { std::signal(SIGPIPE, SIG_IGN); }

void EndBySignal(int number) {
  std::signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(number);
  _exit(128 + number);
}

}  // namespace sparsefw::cli
