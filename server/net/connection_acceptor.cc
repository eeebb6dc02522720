#include "server/net/connection_acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/net/descriptor_limit.h"

namespace sparsefw::server {
namespace {

// How long to wait after the system could not give a connection.
constexpr int kRetryMs = 100;

// Of this connection alone; the next may be accepted.
bool ConcernsOneConnection(int error) {
  switch (error) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM:  // a firewall
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
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
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  for (const Descriptor& socket : sockets_.sockets) polled.push_back({socket.get(), POLLIN, 0});
  bool paused = false;
  while (true) {
    const int ready = poll(polled.data(), paused ? 1 : polled.size(), paused ? kRetryMs : -1);
    if (ready > 0 && polled[0].revents != 0) return;
    if (std::exchange(paused, false) || ready <= 0) continue;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !AcceptOne(polled[i].fd)) paused = true;
    }
  }
}

bool ConnectionAcceptor::AcceptOne(int socket) {
  Descriptor connection(accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection.ok()) return ConcernsOneConnection(errno);
  // The system gives the lowest free descriptor: all below it are open.
  if (connection.get() >= DescriptorLimit() - options_.reserved_descriptors ||
      (options_.max_connections > 0 && open_.Count() >= options_.max_connections)) {
    connection = Descriptor();
    options_.refused();
    return true;
  }
  if (options_.max_connections > 0) open_.Add(connection);
  options_.accepted(std::move(connection));
  return true;
}

}  // namespace sparsefw::server
