// One connection and its peer, as calls see them.
#ifndef SPARSEFW_SERVER_NET_CONNECTION_H_
#define SPARSEFW_SERVER_NET_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/net/descriptor.h"
#include "server/net/fair_semaphore.h"

namespace sparsefw::server {

struct PeerLimits {
  int64_t calls = 0;            // open ones of a peer
  int64_t held_bytes = 0;       // of all peers: messages that calls have and responses
  int64_t peer_held_bytes = 0;  // of a peer
  int turns = 1;                // streams of a peer that bring a message at the same time
  int64_t allowed_bytes = 0;  // beside messages, while one is read for long (Connection::CheckRead)
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
  // Bytes beside messages that were taken for explained, since the start: more than what its
  // connections have needed, and at most what they can hide.
  int64_t allowed() const { return allowed_.load(); }
  void Allow(int64_t bytes) { allowed_.fetch_add(bytes); }
  // At reading a message, of its streams. A stream that is being read may hold a whole message
  // before anybody sees it. So only some are read at a time, and none while the peer holds much;
  // the others wait, and flow control holds their senders. Whoever has a turn gives it back when
  // its message is there, when its stream ends, or after some time in which nothing came. No lock
  // of a stream may be held where a turn is asked for or given back.
  FairSemaphore& turns() { return turns_; }
  Ledger& ledger() { return *ledger_; }

 private:
  const std::shared_ptr<Ledger> ledger_;
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> held_{0};
  std::atomic<int64_t> allowed_{0};
  FairSemaphore turns_;
};

// Bytes that a peer holds; given back with this. Empty: none.
class HeldBytes {
 public:
  HeldBytes() = default;
  HeldBytes(std::shared_ptr<Peer> peer, int64_t bytes) : peer_(std::move(peer)), bytes_(bytes) {}
  HeldBytes(HeldBytes&& other) noexcept
      : peer_(std::move(other.peer_)), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(peer_, other.peer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldBytes() {
    if (peer_ != nullptr) peer_->Release(bytes_);
  }

 private:
  std::shared_ptr<Peer> peer_;
  int64_t bytes_ = 0;
};

// Thread-safe.
class Connection {
 public:
  explicit Connection(std::shared_ptr<Peer> peer) : peer_(std::move(peer)) {}

  // That of calls inside the process, and of those whose connection is closed: without limits.
  static std::shared_ptr<Connection> Unlimited();

  Peer& peer() { return *peer_; }
  // Begins and ends a call. Bytes that a refused one leaves unread stay until it ends, so it counts
  // as well.
  // Errors: ResourceExhausted (TOO_MANY_CALLS), with a retry delay
  absl::Status Enter();
  void Leave();
  // A message is there, or one has been sent, of so many bytes on the wire: it explains bytes that
  // have come in.
  void Received(int64_t bytes);
  void Sent(int64_t bytes);
  // Counts bytes for as long as the result lives.
  // Errors: ResourceExhausted (PEER_MEMORY), with a retry delay
  absl::StatusOr<HeldBytes> Hold(int64_t bytes);
  // Counts a response that is sent now, `copies` of whose bytes are in memory until it is read. A
  // small one is never refused: its call counts.
  absl::StatusOr<HeldBytes> HoldResponse(int64_t bytes, int copies);

  // A read of a message, from its begin until the message is there.
  struct PendingRead {
    std::chrono::steady_clock::time_point begin;
    int64_t allowed = 0;  // Peer::allowed() then
  };
  PendingRead BeginRead() const { return {std::chrono::steady_clock::now(), peer_->allowed()}; }
  // Whether the peer may be hiding what it sends of the message behind other calls and messages:
  // it took long, and they explain more than honest ones need.
  // Errors: ResourceExhausted (PEER_MEMORY), with a retry delay
  absl::Status CheckRead(const PendingRead& read, std::chrono::steady_clock::time_point now) const;

  int64_t calls() const { return calls_.load(); }
  int64_t explained() const { return explained_.load(); }

 private:
  const PeerLimits& limits() const { return peer_->ledger().limits; }
  void Allow(int64_t bytes);

  const std::shared_ptr<Peer> peer_;
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> explained_{0};
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_CONNECTION_H_
