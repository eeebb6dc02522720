#include "server/net/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"

namespace sparsefw::server {
namespace {

constexpr size_t kMappedPrefix = 12;

void SetIpv4(const in_addr& from, PeerAddress* to) {
  to->address[10] = to->address[11] = 0xff;
  std::copy_n(reinterpret_cast<const uint8_t*>(&from), 4, to->address.begin() + kMappedPrefix);
}

bool IsIpv4(const PeerAddress& address) {
  const auto& bytes = address.address;
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t b) { return b == 0; }) &&
         bytes[10] == 0xff && bytes[11] == 0xff;
}

}  // namespace

std::optional<PeerAddress> PeerAddressOf(int socket) {
  sockaddr_storage where = {};
  socklen_t size = sizeof(where);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&where), &size) != 0) return std::nullopt;
  PeerAddress result;
  if (where.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(where);
    SetIpv4(ipv4.sin_addr, &result);
    result.port = ntohs(ipv4.sin_port);
    return result;
  }
  if (where.ss_family != AF_INET6) return std::nullopt;
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(where);
  std::copy_n(reinterpret_cast<const uint8_t*>(&ipv6.sin6_addr), 16, result.address.begin());
  result.port = ntohs(ipv6.sin6_port);
  return result;
}

std::optional<PeerAddress> ParsePeerAddress(std::string_view text) {
  const bool ipv4 = text.starts_with("ipv4:");
  if (!ipv4 && !text.starts_with("ipv6:")) return std::nullopt;
  const size_t colon = text.rfind(':');
  if (colon <= 5) return std::nullopt;
  PeerAddress result;
  int port = 0;
  if (!absl::SimpleAtoi(std::string(text.substr(colon + 1)), &port) || port < 0 || port > 65535) {
    return std::nullopt;
  }
  result.port = static_cast<uint16_t>(port);
  std::string host = absl::StrReplaceAll(std::string(text.substr(5, colon - 5)),
                                         {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  // The interface of a link-local address.
  if (const size_t scope = host.find('%'); scope != std::string::npos) host.resize(scope);
  if (ipv4) {
    in_addr address = {};
    if (inet_pton(AF_INET, host.c_str(), &address) != 1) return std::nullopt;
    SetIpv4(address, &result);
    return result;
  }
  if (inet_pton(AF_INET6, host.c_str(), result.address.data()) != 1) return std::nullopt;
  return result;
}

PeerKey PeerKeyOf(const PeerAddress& address) {
  PeerKey key = address.address;
  if (!IsIpv4(address)) std::fill(key.begin() + 8, key.end(), uint8_t{0});
  return key;
}

}  // namespace sparsefw::server
