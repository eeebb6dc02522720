// What one call takes of its peer's share.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_CALL_SHARE_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_CALL_SHARE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/net/connections.h"

namespace sparsefw::server {

// Of a call inside the process, or of a connection that is closed, nothing is counted.
// Thread-safe but for Enter and Leave.
class CallShare {
 public:
  CallShare(const Connections* connections, const grpc::CallbackServerContext& rpc);

  // Counts the call until Leave.
  // Errors: ResourceExhausted (TOO_MANY_CALLS), with a retry delay
  absl::Status Enter();
  void Leave();

  // A message is there, or data have been sent, of so many bytes on the wire.
  void Received(int64_t bytes);
  void Sent(int64_t bytes);
  // Counts bytes for as long as the result lives.
  // Errors: ResourceExhausted (PEER_MEMORY), with a retry delay
  absl::StatusOr<HeldBytes> Hold(int64_t bytes);

  // Takes a turn at reading a message; `begin` is called at once or later.
  void TakeTurn(std::function<void()> begin);
  void GiveTurnBack();

 private:
  const std::shared_ptr<Connection> connection_;
  bool entered_ = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_CALL_SHARE_H_
