#include "server/app/run_server.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "grpc/support/log.h"
#include "server/app/config.h"
#include "server/app/logging.h"
#include "server/app/server.h"

namespace sparsefw::server {
namespace {

// Beyond the grace, before a stuck exit is cut short.
constexpr absl::Duration kWatchdogMargin = absl::Seconds(10);

// glibc gives the memory of every chunk back to the system and asks for it
// again: uploads then run at half their speed.
void TuneAllocator() {
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

// gRPC's own messages: what matters comes to us as a status as well.
std::atomic<Logger*> g_grpc_logger{nullptr};
void LogOfGrpc(gpr_log_func_args* args) {
  Logger* logger = g_grpc_logger.load();
  if (logger == nullptr) return;
  logger->Log(LogLevel::kDebug, "grpc", {{"message", std::string(args->message)}});
}

sigset_t DrainSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Every thread inherits the mask, so that only sigwait sees the signals.
void BlockSignals() {
  const sigset_t signals = DrainSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

// Leaves at once, whatever the rest of the process is stuck in: on a second
// signal, and when the drain takes longer than it may.
void StartWatchdog(absl::Duration limit, Logger* logger) {
  std::thread([limit, logger] {
    const sigset_t signals = DrainSignals();
    timespec timeout = absl::ToTimespec(limit);
    const int signal = sigtimedwait(&signals, nullptr, &timeout);
    logger->Log(LogLevel::kError, signal > 0 ? "second signal, leaving at once"
                                             : "the drain is stuck, leaving at once");
    _exit(1);
  }).detach();
}

}  // namespace

int RunServer(int argc, char** argv) {
  const Arguments arguments =
      ParseArguments(std::vector<std::string>(argv + 1, argv + argc), [](const std::string& name) {
        const char* value = std::getenv(name.c_str());
        return std::string(value == nullptr ? "" : value);
      });
  if (!arguments.config.has_value()) {
    std::fputs(arguments.text.c_str(), arguments.exit_code == 0 ? stdout : stderr);
    return arguments.exit_code;
  }
  const ServerConfig& config = *arguments.config;
  TuneAllocator();
  BlockSignals();
  // Lives until the process ends: the watchdog and gRPC may log to the last.
  auto* logger = new Logger(config.log_level, config.log_format);
  g_grpc_logger.store(logger);
  gpr_set_log_function(LogOfGrpc);

  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config, logger);
  if (!server.ok()) {
    const absl::string_view message = server.status().message();
    std::fprintf(stderr, "sparsefw-server: %.*s\n", static_cast<int>(message.size()),
                 message.data());
    return 1;
  }
  std::printf("listening on %s metrics on %s device %s\n", (*server)->address().c_str(),
              (*server)->metrics_address().c_str(), (*server)->device().c_str());
  std::fflush(stdout);

  const sigset_t signals = DrainSignals();
  int signal = 0;
  sigwait(&signals, &signal);
  StartWatchdog(config.drain_grace + kWatchdogMargin, logger);
  (*server)->Drain(config.drain_grace);
  server->reset();
  return 0;
}

}  // namespace sparsefw::server
