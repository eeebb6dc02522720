#include "server/net/connection_acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace sparsefw::server {
namespace {

// How long to wait after the system could not give a connection.
constexpr int kRetryMs = 100;

// True: the error concerns this connection alone; the next may be accepted. EPERM: a firewall.
bool ConcernsOneConnection(int error) {
  constexpr int kErrors[] = {EAGAIN,   EINTR,       ECONNABORTED, EPROTO,       EPERM,
                             ENETDOWN, ENETUNREACH, EHOSTDOWN,    EHOSTUNREACH, ETIMEDOUT};
  return std::ranges::count(kErrors, error) > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Start(ListenSockets sockets,
                                                                              Options options) {
  Descriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.ok()) return absl::ErrnoToStatus(errno, "cannot make an eventfd");
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(sockets), std::move(options), std::move(stop)));
}

ConnectionAcceptor::ConnectionAcceptor(ListenSockets sockets, Options options, Descriptor stop)
    : sockets_(std::move(sockets)), options_(std::move(options)), stop_(std::move(stop)) {
  thread_ = std::thread([this] { Run(); });
}

ConnectionAcceptor::~ConnectionAcceptor() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ConnectionAcceptor::Run() {
  ConnectionGate* const gate = options_.gate;
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0},
                                {gate ? gate->wake_descriptor() : -1, POLLIN, 0}};
  constexpr size_t kFirstSocket = 2;
  for (const Descriptor& socket : sockets_.sockets) polled.push_back({socket.get(), POLLIN, 0});
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_sweep = Clock::now();
  bool paused = false;
  while (true) {
    int wait = paused ? kRetryMs : -1;
    if (gate != nullptr) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_sweep - Clock::now());
      const int sweep = static_cast<int>(std::max<int64_t>(0, left.count()));
      wait = wait < 0 ? sweep : std::min(wait, sweep);
    }
    const int ready = poll(polled.data(), paused ? kFirstSocket : polled.size(), wait);
    if (ready > 0 && polled[0].revents != 0) return;
    const bool woken = ready > 0 && polled[1].revents != 0;
    if (woken) {
      eventfd_t count = 0;
      eventfd_read(polled[1].fd, &count);
    }
    if (gate != nullptr && (woken || Clock::now() >= next_sweep)) {
      next_sweep = Clock::now() + gate->Sweep();
    }
    if (std::exchange(paused, false) || ready <= 0) continue;
    for (size_t i = kFirstSocket; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !AcceptOne(polled[i].fd)) paused = true;
    }
  }
}

bool ConnectionAcceptor::AcceptOne(int socket) {
  Descriptor connection(accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection.ok()) return ConcernsOneConnection(errno);
  // The system gives the lowest free descriptor: all below it are open.
  if (connection.get() >= DescriptorLimit() - options_.reserved_descriptors ||
      (options_.gate != nullptr && !options_.gate->Add(connection))) {
    connection = Descriptor();
    options_.refused();
    return true;
  }
  options_.accepted(std::move(connection));
  return true;
}

}  // namespace sparsefw::server
