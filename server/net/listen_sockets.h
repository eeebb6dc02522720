// TCP sockets that listen on an address.
#ifndef SPARSEFW_SERVER_NET_LISTEN_SOCKETS_H_
#define SPARSEFW_SERVER_NET_LISTEN_SOCKETS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/net/descriptor.h"

namespace sparsefw::server {

// "127.0.0.1:50051", "[::1]:0", "localhost:80".
struct HostPort {
  std::string host;
  int port = 0;
};
std::optional<HostPort> ParseHostPort(std::string_view text);

struct ListenSockets {
  std::vector<Descriptor> sockets;  // non-blocking, one for each address of the host
  int port = 0;                     // of all of them
  bool loopback = true;             // all of them: no other machine can connect
};

// Port 0 takes a free one. [::] takes IPv4 connections as well. Addresses of a
// host that this machine does not have are left out while there is another.
// Errors, all beginning with `message`:
//   InvalidArgument  the host has no address
//   what the system says: FailedPrecondition for a port in use, PermissionDenied, ...
absl::StatusOr<ListenSockets> Listen(const HostPort& address, const std::string& message);

// ListenSockets::loopback of the address, before it is listened on. Errors: Listen's.
absl::StatusOr<bool> IsLoopback(const HostPort& address, const std::string& message);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_LISTEN_SOCKETS_H_
