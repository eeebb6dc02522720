// The server's memory that open connections and their peers take, and its limits.
#ifndef SPARSEFW_SERVER_NET_CONNECTIONS_H_
#define SPARSEFW_SERVER_NET_CONNECTIONS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "server/net/connection.h"
#include "server/net/connection_acceptor.h"
#include "server/net/descriptor.h"
#include "server/net/peer_address.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// gRPC takes a connection's descriptor and says nothing when it closes it, and it keeps the
// bytes of a message that is not whole without a bound: whoever announces 4 GiB may send
// them. So this counts from outside. The system says how many bytes a connection has
// received; calls say how many they were given; the difference is held in between.
//
// A descriptor that is closed, or is another socket by now, has another inode.
//
// Add and Sweep: one thread, which is also the only one that accepts connections; the rest
// is thread-safe.
class Connections final : public ConnectionGate {
 public:
  struct Limits {
    int64_t connections = 0;       // 0: none
    int64_t peer_connections = 0;  // 0: none
    // Received and not yet given to a call.
    int64_t unfinished_bytes = 0;
    int64_t peer_unfinished_bytes = 0;
    PeerLimits peer;
  };
  struct Counts {
    int64_t connections = 0;
    int64_t peers = 0;
    int64_t calls = 0;
    int64_t unfinished_bytes = 0;
    int64_t held_bytes = 0;
    int64_t closed = 0;  // for their unfinished bytes, since the start
  };

  explicit Connections(const Limits& limits);
  ~Connections() override;

  // False: one more would be beyond a limit. Else the connection counts until it is closed.
  bool Add(const Descriptor& socket) override;
  // Closes what is beyond a limit. A peer loses all its connections but those that hold little.
  // One after the other would not do, since glibc gives what the first ones held back to the
  // system only after a while. The limit of all together closes the largest
  // connection of the largest peer, again and again, but none of a peer that holds less than its
  // part of half the limit.
  std::chrono::milliseconds Sweep() override;
  // Readable once calls begin after a time without any.
  int wake_descriptor() const override;

  // Null: no such connection.
  std::shared_ptr<Connection> Find(const PeerAddress& address) const;
  Counts counts() const;

 private:
  struct Watched;

  // A connection closed for its unfinished bytes, which gRPC has not given back yet.
  struct Closed {
    std::shared_ptr<Connection> connection;
    int64_t bytes = 0;
  };
  struct PeerState {
    std::shared_ptr<Peer> peer;
    int64_t connections = 0;
    int64_t unfinished = 0;    // of open connections, in this sweep
    int64_t closed_bytes = 0;  // of `closed`, in this sweep
    std::vector<Closed> closed = {};
    std::chrono::steady_clock::time_point closed_at = {};   // the last of them
    std::chrono::steady_clock::time_point refused_at = {};  // after a look for room
  };

  void Measure(Watched& watched, double seconds);
  void Remove(size_t index);
  void RemoveClosed();
  bool HasRoom(const PeerKey& peer);
  // Looks for connections that have ended; whether the peer has room then.
  bool MadeRoom(const PeerKey& peer);
  // What connections that were closed held is given back a moment later: until then it
  // counts, and the peer gets no new ones.
  static bool IsResting(PeerState& state);
  void CountClosed();
  void Enforce();
  void EnforceTotal();
  // The connection of the peer with most unfinished bytes. False: none has more than `spared`.
  bool CloseLargest(const PeerKey& peer, int64_t spared);

  const Limits limits_;
  const std::shared_ptr<Ledger> ledger_;

  // Used by the one thread alone.
  std::vector<Watched> watched_;
  std::map<PeerKey, PeerState> peers_;
  std::chrono::steady_clock::time_point last_sweep_ = {};
  std::chrono::steady_clock::time_point last_removal_ = {};

  mutable Mutex mutex_;
  std::map<PeerAddress, std::shared_ptr<Connection>> by_address_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> connection_count_{0};
  std::atomic<int64_t> peer_count_{0};
  std::atomic<int64_t> unfinished_{0};
  std::atomic<int64_t> closed_{0};
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_CONNECTIONS_H_
