#include "server/net/listen_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace sparsefw::server {
namespace {

// A peer that acknowledges nothing for this long is gone.
constexpr int kUserTimeoutMs = 20'000;

// errno, or 0.
int Set(int socket, int level, int option, int value) {
  return setsockopt(socket, level, option, &value, sizeof(value)) == 0 ? 0 : errno;
}

// Accepted connections inherit the options. Returns errno, or 0.
int Open(const addrinfo& address, int port, Descriptor* result) {
  Descriptor fd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return errno;
  sockaddr_storage where = {};
  std::copy_n(reinterpret_cast<const char*>(address.ai_addr), address.ai_addrlen,
              reinterpret_cast<char*>(&where));
  // sin_port and sin6_port lie at the same place.
  reinterpret_cast<sockaddr_in*>(&where)->sin_port = htons(static_cast<uint16_t>(port));
  int error = Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (error == 0 && address.ai_family == AF_INET6) {
    error = Set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (error == 0) error = Set(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (error == 0) error = Set(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  if (error != 0) return error;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), address.ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return errno;
  }
  *result = std::move(fd);
  return 0;
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& where = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(where.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& where = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&where) || (IN6_IS_ADDR_V4MAPPED(&where) && where.s6_addr[12] == 127);
}

int PortOf(const Descriptor& socket) {
  sockaddr_storage where = {};
  socklen_t size = sizeof(where);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&where), &size);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&where)->sin_port);
}

}  // namespace

std::optional<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  HostPort result;
  result.host = text.substr(0, colon);
  const bool bracketed = result.host.front() == '[' && result.host.back() == ']';
  if (!bracketed && result.host.find(':') != std::string::npos) return std::nullopt;
  const std::string port(text.substr(colon + 1));
  if (port.empty() || port.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  if (!absl::SimpleAtoi(port, &result.port) || result.port > 65535) return std::nullopt;
  return result;
}

absl::StatusOr<ListenSockets> Listen(const HostPort& address, const std::string& message) {
  std::string host = address.host;
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failure != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", message, gai_strerror(failure)));
  }
  const absl::Cleanup free_addresses = [found] { freeaddrinfo(found); };
  ListenSockets result;
  result.port = address.port;
  int missing = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Descriptor socket;
    const int error = Open(*one, result.port, &socket);
    if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
      missing = error;
      continue;
    }
    if (error != 0) return absl::ErrnoToStatus(error, message);
    if (result.port == 0) result.port = PortOf(socket);
    result.loopback = result.loopback && IsLoopback(*one->ai_addr);
    result.sockets.push_back(std::move(socket));
  }
  if (result.sockets.empty()) return absl::ErrnoToStatus(missing, message);
  return result;
}

// Binds a free port for a moment: the system knows which addresses the host has.
absl::StatusOr<bool> IsLoopback(const HostPort& address, const std::string& message) {
  absl::StatusOr<ListenSockets> sockets = Listen({address.host, 0}, message);
  if (!sockets.ok()) return std::move(sockets).status();
  return sockets->loopback;
}

}  // namespace sparsefw::server
