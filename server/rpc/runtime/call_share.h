// The part of a peer's share that one call takes.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_CALL_SHARE_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_CALL_SHARE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/net/connections.h"

namespace sparsefw::server {

// Nothing is counted for a call inside the process, or for one of a connection that is closed.
// Thread-safe but for Enter and Leave.
class CallShare {
 public:
  CallShare(const Connections* connections, const grpc::CallbackServerContext& rpc);

  // Counts the call until Leave, also where it is refused.
  // Errors: ResourceExhausted (TOO_MANY_CALLS), with a retry delay
  absl::Status Enter();
  void Leave();

  // A message is there, or one has been sent, of so many bytes on the wire.
  void Received(int64_t bytes);
  void Sent(int64_t bytes);
  // Counts bytes for as long as the result lives.
  // Errors: ResourceExhausted (PEER_MEMORY), with a retry delay
  absl::StatusOr<HeldBytes> Hold(int64_t bytes);
  // Counts a response that is sent now, `copies` of whose bytes are in memory until it is read. A
  // small one is never refused: its call counts.
  absl::StatusOr<HeldBytes> HoldResponse(int64_t bytes, int copies);

  // Takes a turn at reading a message; `begin` is called at once or later, unless it is withdrawn.
  ReadTurns::Ticket TakeTurn(std::function<void()> begin);
  void WithdrawTurn(ReadTurns::Ticket ticket);
  void GiveTurnBack();

  // A read of a message, from its begin until the message is there.
  struct PendingRead {
    std::chrono::steady_clock::time_point begin;
    int64_t allowed = 0;  // Peer::allowed() then
  };
  PendingRead BeginRead() const;
  // Whether the peer may be hiding what it sends of the message behind other calls and messages:
  // it took long, and they explain more than honest ones need.
  // Errors: ResourceExhausted (PEER_MEMORY), with a retry delay
  absl::Status CheckRead(const PendingRead& read, std::chrono::steady_clock::time_point now) const;

 private:
  const std::shared_ptr<Connection> connection_;
  bool entered_ = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_CALL_SHARE_H_
