// Who may connect, and how long connections may last.
#ifndef SPARSEFW_SERVER_NET_CONNECTION_GATE_H_
#define SPARSEFW_SERVER_NET_CONNECTION_GATE_H_

#include <chrono>

#include "server/net/descriptor.h"

namespace sparsefw::server {

// Called on the thread that accepts connections, and on no other.
class ConnectionGate {
 public:
  virtual ~ConnectionGate() = default;
  // False: there is no room for it.
  virtual bool Add(const Descriptor& socket) = 0;
  // Looks at the connections. Says when it wants to be called again.
  virtual std::chrono::milliseconds Sweep() = 0;
  // Becomes readable when a Sweep is wanted earlier than was said; -1: never.
  virtual int wake_descriptor() const { return -1; }
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_CONNECTION_GATE_H_
