// Counts connections that somebody else closes.
#ifndef SPARSEFW_SERVER_NET_OPEN_CONNECTIONS_H_
#define SPARSEFW_SERVER_NET_OPEN_CONNECTIONS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "server/net/descriptor.h"

namespace sparsefw::server {

// gRPC takes a connection's descriptor and says nothing when it closes it. A
// descriptor that is closed, or is another socket by now, has another inode.
// Not thread-safe. Count costs a system call for each connection that was added
// and not yet found closed.
class OpenConnections {
 public:
  void Add(const Descriptor& connection);
  int64_t Count();

 private:
  std::map<int, ino_t> sockets_;  // descriptor -> inode
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_OPEN_CONNECTIONS_H_
