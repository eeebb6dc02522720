#include "server/app/connection_limits.h"

namespace sparsefw::server {
namespace {

// Shares of --peer-memory and --connection-memory. A byte that has come in takes more than a byte:
// a message in frames of one byte each takes 5.3 times what is on the wire. So unfinished messages
// may take a tenth of the memory. Messages and responses of calls are in memory twice: in
// protobuf's form and in gRPC's.
constexpr int64_t kUnfinishedShare = 10;
constexpr int64_t kHeldShare = 4;

constexpr int64_t kPeerCalls = 2048;
// The largest messages and the windows of a hundred streams fit what a peer may leave unfinished.
constexpr int kTurns = 9;

}  // namespace

Connections::Limits ConnectionLimits(const ServerConfig& config) {
  Connections::Limits limits;
  limits.connections = config.max_connections;
  limits.peer_connections = config.max_peer_connections;
  limits.unfinished_bytes = config.connection_memory_bytes / kUnfinishedShare;
  limits.peer_unfinished_bytes = config.peer_memory_bytes / kUnfinishedShare;
  limits.peer.calls = kPeerCalls;
  limits.peer.held_bytes = config.connection_memory_bytes / kHeldShare;
  limits.peer.peer_held_bytes = config.peer_memory_bytes / kHeldShare;
  limits.peer.turns = kTurns;
  limits.peer.allowed_bytes = limits.peer_unfinished_bytes / 4;
  return limits;
}

int64_t GrpcMemory(const ServerConfig& config) { return config.connection_memory_bytes / 4; }

}  // namespace sparsefw::server
