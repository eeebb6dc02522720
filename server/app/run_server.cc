#include "server/app/run_server.h"

#include <fcntl.h>
#include <malloc.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "grpc/support/log.h"
#include "server/app/config.h"
#include "server/app/observe/logging.h"
#include "server/app/server.h"
#include "server/app/settings.h"
#include "server/net/descriptor.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

// Time beyond the graces after which a drain that hangs is aborted. Uploads under way are
// written to the disk in it, which other programs may keep busy.
constexpr absl::Duration kWatchdogMargin = absl::Seconds(25);

// Otherwise glibc returns the memory of every chunk to the system and requests it
// again, which halves the speed of uploads.
void TuneAllocator() {
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

// gRPC's own messages: relevant errors also arrive as statuses.
std::atomic<Logger*> g_grpc_logger{nullptr};
void LogOfGrpc(gpr_log_func_args* args) {
  g_grpc_logger.load()->Log(LogLevel::kDebug, "grpc", {{"message", std::string(args->message)}});
}

// A handler, not a mask and sigwait: libraries start threads of their own
// before main, and a signal that is blocked everywhere else would hit them.
int g_signal_pipe[2] = {-1, -1};
std::atomic<int> g_signals{0};  // lock-free: two threads may be in the handler at once

constexpr char kDrain = 'd';
constexpr char kReload = 'r';

void Tell(char what) {
  const int saved_errno = errno;
  static_cast<void>(!write(g_signal_pipe[1], &what, 1));
  errno = saved_errno;
}

void OnDrainSignal(int /*signal*/) {
  if (g_signals.fetch_add(1) > 0) _exit(1);
  Tell(kDrain);
}

void OnReloadSignal(int /*signal*/) { Tell(kReload); }

absl::Status InstallSignalHandlers() {
  // Writing must not wait: SIGHUP may come more often than it is answered.
  if (pipe2(g_signal_pipe, O_CLOEXEC) != 0 || fcntl(g_signal_pipe[1], F_SETFL, O_NONBLOCK) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make the pipe that signals go through");
  }
  struct sigaction action {};
  action.sa_handler = OnDrainSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = OnReloadSignal;
  sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // A file beyond the limit of the process (LimitFSIZE=) is an error of one write.
  std::signal(SIGXFSZ, SIG_IGN);
  return absl::OkStatus();
}

// The next of kDrain and kReload.
char WaitForSignal() {
  char what = kDrain;
  while (read(g_signal_pipe[0], &what, 1) < 0 && errno == EINTR) continue;
  return what;
}

// Exits at once when the drain takes longer than it may, whatever the process is
// stuck in.
void StartWatchdog(absl::Duration limit, Logger* logger) {
  std::thread([limit, logger] {
    absl::SleepFor(limit);
    logger->Log(LogLevel::kError, "the drain is stuck, leaving at once");
    _exit(1);
  }).detach();
}

int Fail(const absl::Status& status) {
  std::string reason = ReasonOf(status);
  if (!reason.empty()) reason = " (" + reason + ")";
  absl::FPrintF(stderr, "sparsefw-server: %s%s\n", status.message(), reason);
  // The exit status of a wrong flag, where starting again does not help.
  const bool lasting = HasReason(status, "CONFIGURATION_INVALID") ||
                       HasReason(status, "SPOOL_MISMATCH") || HasReason(status, "STORE_VERSION");
  return lasting ? 2 : 1;
}

}  // namespace

int RunServer(int argc, char** argv) {
  const Arguments arguments =
      ParseArguments(std::vector<std::string>(argv + 1, argv + argc),
                     [](const std::string& name) -> std::optional<std::string> {
                       const char* value = std::getenv(name.c_str());
                       if (value == nullptr) return std::nullopt;
                       return value;
                     });
  if (!arguments.config.has_value()) {
    std::fputs(arguments.text.c_str(), arguments.exit_code == 0 ? stdout : stderr);
    return arguments.exit_code;
  }
  const ServerConfig& config = *arguments.config;
  TuneAllocator();
  RaiseDescriptorLimit();
  if (const absl::Status status = InstallSignalHandlers(); !status.ok()) return Fail(status);
  // Lives until the process ends, since the watchdog and gRPC may log until then.
  auto* logger = new Logger(config.log_level, config.log_format);
  g_grpc_logger.store(logger);
  gpr_set_log_function(LogOfGrpc);

  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config, logger);
  if (!server.ok()) return Fail(server.status());
  LogSettings(config.settings, logger);
  std::printf("listening on %s metrics on %s device %s\n", (*server)->address().c_str(),
              (*server)->metrics_address().c_str(), (*server)->device().c_str());
  std::fflush(stdout);
  sd_notify(0, "READY=1");  // does nothing where systemd did not start the program (Type=notify)

  // g_signals: the pipe may have been too full of kReload for a kDrain.
  while (WaitForSignal() == kReload && g_signals.load() == 0) (*server)->Reload();
  sd_notify(0, "STOPPING=1\nSTATUS=draining");
  StartWatchdog(config.drain_grace + config.fetch_grace + kWatchdogMargin, logger);
  (*server)->Drain(config.drain_grace);
  server->reset();
  return 0;
}

}  // namespace sparsefw::server
