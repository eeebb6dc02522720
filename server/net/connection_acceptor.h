// Accepts TCP connections and hands them on; who may connect, and how long connections may last.
#ifndef SPARSEFW_SERVER_NET_CONNECTION_ACCEPTOR_H_
#define SPARSEFW_SERVER_NET_CONNECTION_ACCEPTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "server/net/descriptor.h"
#include "server/net/listen_sockets.h"

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

// Accepts on a thread of its own until it is destroyed. Not gRPC's own listener:
// that of version 1.51 stops for good at the first accept that fails, for
// example when the process has no file descriptor left.
//
// Connections leave some descriptors free: one that would take them is closed
// at once, so that its client sees an error and may come again; likewise one for which
// `gate` has no room. Where others have used up even these, or the system is out of
// memory, connections wait in the system's queue and are accepted later.
class ConnectionAcceptor {
 public:
  // Functions are called on the acceptor's thread and must not block for long.
  struct Options {
    int64_t reserved_descriptors = 0;
    ConnectionGate* gate = nullptr;            // null: none. Outlives the acceptor.
    std::function<void(Descriptor)> accepted;  // non-blocking socket
    std::function<void()> refused;             // a connection was closed at once
  };

  // Errors: what the system says (no descriptor left).
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Start(ListenSockets sockets,
                                                                   Options options);
  // Closes the listening sockets. No function is called any more.
  ~ConnectionAcceptor();

 private:
  ConnectionAcceptor(ListenSockets sockets, Options options, Descriptor stop);

  void Run();
  // False when nothing can be accepted for now.
  bool AcceptOne(int socket);

  const ListenSockets sockets_;
  const Options options_;
  const Descriptor stop_;
  std::thread thread_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_CONNECTION_ACCEPTOR_H_
