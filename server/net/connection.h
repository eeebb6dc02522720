// One connection and its peer, as calls see them.
#ifndef SPARSEFW_SERVER_NET_CONNECTION_H_
#define SPARSEFW_SERVER_NET_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/net/descriptor.h"
#include "server/net/read_turns.h"

namespace sparsefw::server {

struct PeerLimits {
  int64_t calls = 0;            // open ones of a peer
  int64_t held_bytes = 0;       // of all peers: messages that calls have and responses
  int64_t peer_held_bytes = 0;  // of a peer
  int turns = 1;                // streams of a peer that bring a message at the same time
  int64_t allowed_bytes = 0;  // beside messages, while one is read for long (CallShare::CheckRead)
};

// The bytes that all peers hold together, and the thread to wake. Thread-safe.
struct Ledger {
  explicit Ledger(const PeerLimits& limits);

  const PeerLimits limits;
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> held{0};
  std::atomic<bool> asleep{true};  // nobody looks at the connections
  const Descriptor wake;           // an eventfd
};

// Thread-safe.
class Peer {
 public:
  explicit Peer(std::shared_ptr<Ledger> ledger);

  // False: more calls than it may have. It counts either way, until Leave.
  bool Enter();
  void Leave();
  bool Hold(int64_t bytes);  // false: beyond a limit
  // May begin turns: no lock of a call may be held.
  void Release(int64_t bytes);
  int64_t held() const { return held_.load(); }
  // Bytes beside messages that were taken for explained, since the start: more than what its
  // connections have needed, and at most what they can hide.
  int64_t allowed() const { return allowed_.load(); }
  void Allow(int64_t bytes) { allowed_.fetch_add(bytes); }
  ReadTurns& turns() { return turns_; }
  Ledger& ledger() { return *ledger_; }

 private:
  const std::shared_ptr<Ledger> ledger_;
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> held_{0};
  std::atomic<int64_t> allowed_{0};
  ReadTurns turns_;
};

// Thread-safe.
class Connection {
 public:
  explicit Connection(std::shared_ptr<Peer> peer) : peer_(std::move(peer)) {}

  Peer& peer() { return *peer_; }
  const PeerLimits& limits() const { return peer_->ledger().limits; }
  // Begins and ends a call; false: the peer has too many. Bytes that such a call leaves unread stay
  // until it ends, so it counts as well.
  bool Enter();
  void Leave();
  // A message, or data that was sent, explains bytes that have come in.
  void Received(int64_t bytes);
  void Sent(int64_t bytes);

  int64_t calls() const { return calls_.load(); }
  int64_t explained() const { return explained_.load(); }

 private:
  void Allow(int64_t bytes);

  const std::shared_ptr<Peer> peer_;
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> explained_{0};
};

// Bytes that a peer holds; given back with this. Empty: nothing is counted.
class HeldBytes {
 public:
  HeldBytes() = default;
  HeldBytes(std::shared_ptr<Connection> connection, int64_t bytes)
      : connection_(std::move(connection)), bytes_(bytes) {}
  HeldBytes(HeldBytes&& other) noexcept
      : connection_(std::move(other.connection_)), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(connection_, other.connection_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldBytes() {
    if (connection_ != nullptr && bytes_ > 0) connection_->peer().Release(bytes_);
  }

 private:
  std::shared_ptr<Connection> connection_;
  int64_t bytes_ = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_CONNECTION_H_
