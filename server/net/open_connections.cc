#include "server/net/open_connections.h"

#include <sys/stat.h>

#include <optional>

namespace sparsefw::server {
namespace {

std::optional<ino_t> SocketInode(int descriptor) {
  struct stat facts = {};
  if (fstat(descriptor, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return std::nullopt;
  return facts.st_ino;
}

}  // namespace

void OpenConnections::Add(const Descriptor& connection) {
  if (const auto inode = SocketInode(connection.get())) sockets_[connection.get()] = *inode;
}

int64_t OpenConnections::Count() {
  std::erase_if(sockets_,
                [](const auto& socket) { return SocketInode(socket.first) != socket.second; });
  return static_cast<int64_t>(sockets_.size());
}

}  // namespace sparsefw::server
