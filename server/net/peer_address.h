// Addresses of connections: which one it is, and who is behind it.
#ifndef SPARSEFW_SERVER_NET_PEER_ADDRESS_H_
#define SPARSEFW_SERVER_NET_PEER_ADDRESS_H_

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sparsefw::server {

// The far end of a connection. Two open ones share it only where the server has more than
// one address, which Connections refuses.
struct PeerAddress {
  std::array<uint8_t, 16> address = {};  // IPv4 as ::ffff:a.b.c.d
  uint16_t port = 0;
  auto operator<=>(const PeerAddress&) const = default;
};

// Nothing where the socket is not connected, or not over IP.
std::optional<PeerAddress> PeerAddressOf(int socket);

// As gRPC writes them: "ipv4:127.0.0.1:4242", "ipv6:%5B::1%5D:4242". Nothing for others.
std::optional<PeerAddress> ParsePeerAddress(std::string_view text);

// The addresses that count as one peer: an IPv4 address, or the 64 bits of an IPv6 network, since
// the owner of one address has them all.
using PeerKey = std::array<uint8_t, 16>;
PeerKey PeerKeyOf(const PeerAddress& address);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_PEER_ADDRESS_H_
