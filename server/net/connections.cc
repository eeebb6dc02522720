#include "server/net/connections.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

namespace sparsefw::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// While there are calls. A connection brings at most some 20 MiB in this time.
constexpr milliseconds kSweep(20);
// The pause of a peer after one of its connections was closed.
constexpr milliseconds kRest(1000);
// Looking takes at most one part of so many of a processor.
constexpr int kSweepShare = 20;
constexpr milliseconds kAsleep(1000);
// A connection with less than one part of so many of its peer's limit is spared.
constexpr int64_t kSparedShare = 32;
// Handshakes and settings of a connection, then pings and acknowledgements: no message
// explains them.
constexpr double kControlBytes = 16 << 10;
constexpr double kControlBytesPerSecond = 16;

// Processor time of this thread: on a busy machine it waits without taking any.
milliseconds ProcessorTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(time.tv_sec) +
                                                  std::chrono::nanoseconds(time.tv_nsec));
}

std::optional<ino_t> SocketInode(int descriptor) {
  struct stat facts = {};
  if (fstat(descriptor, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return std::nullopt;
  return facts.st_ino;
}

// Bytes since the socket was opened; 0 where the system does not tell.
int64_t BytesReceived(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received)) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

// Received, and not taken out of the system yet: its memory, with limits of its own.
int64_t BytesInSystem(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCINQ, &bytes) == 0 ? bytes : 0;
}

// Resets the connection and drops what the system has received of it. After a shutdown gRPC
// would still read that, up to several MiB a connection.
void Reset(int socket) {
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  if (connect(socket, &nobody, sizeof(nobody)) != 0) shutdown(socket, SHUT_RDWR);
}

}  // namespace

struct Connections::Watched {
  int socket = -1;
  ino_t inode = 0;
  PeerAddress address;
  PeerKey peer;
  std::shared_ptr<Connection> connection;
  int64_t received = 0;            // at the last look
  int64_t explained = 0;           // at the last look
  double excess = -kControlBytes;  // received and not explained
  int64_t unfinished = 0;
  bool quiet = false;  // there was no call at the last look
  bool closing = false;

  bool IsOpen() const { return SocketInode(socket) == inode; }
};

Connections::Connections(const Limits& limits)
    : limits_(limits), ledger_(std::make_shared<Ledger>(limits.peer)) {}

Connections::~Connections() = default;

int Connections::wake_descriptor() const { return ledger_->wake.get(); }

bool Connections::HasRoom(const PeerKey& peer) {
  if (limits_.connections > 0 && std::ssize(watched_) >= limits_.connections) return false;
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return true;
  if (IsResting(found->second)) return false;
  return limits_.peer_connections == 0 || found->second.connections < limits_.peer_connections;
}

bool Connections::MadeRoom(const PeerKey& peer) {
  const auto found = peers_.find(peer);
  // A look at all connections: a peer that has its share must not be able to ask for it often.
  if (found != peers_.end() && Clock::now() - found->second.refused_at < kSweep) return false;
  RemoveClosed();
  if (HasRoom(peer)) return true;
  const auto left = peers_.find(peer);
  if (left != peers_.end()) left->second.refused_at = Clock::now();
  return false;
}

bool Connections::IsResting(PeerState& state) {
  std::erase_if(state.closed, [](const Closed& one) { return one.connection->calls() == 0; });
  return !state.closed.empty() || Clock::now() - state.closed_at < kRest;
}

bool Connections::Add(const Descriptor& socket) {
  const std::optional<ino_t> inode = SocketInode(socket.get());
  const std::optional<PeerAddress> address = PeerAddressOf(socket.get());
  if (!inode || !address) return false;  // closed by now
  const PeerKey key = PeerKeyOf(*address);
  // A client can use its port for two connections where the server has two addresses. Calls
  // would be counted for one of them only.
  if (Find(*address) != nullptr && std::ranges::any_of(watched_, [&](const Watched& other) {
        return other.address == *address && other.IsOpen();
      })) {
    return false;
  }
  if (!HasRoom(key) && !MadeRoom(key)) return false;
  PeerState& state = peers_[key];
  if (state.peer == nullptr) state.peer = std::make_shared<Peer>(ledger_);
  ++state.connections;
  Watched watched;
  watched.socket = socket.get();
  watched.inode = *inode;
  watched.address = *address;
  watched.peer = key;
  watched.connection = std::make_shared<Connection>(state.peer);
  {
    MutexLock lock(mutex_);
    by_address_[*address] = watched.connection;
  }
  watched_.push_back(std::move(watched));
  connection_count_ = std::ssize(watched_);
  peer_count_ = std::ssize(peers_);
  return true;
}

void Connections::Remove(size_t index) {
  Watched& gone = watched_[index];
  {
    MutexLock lock(mutex_);
    const auto found = by_address_.find(gone.address);
    // The address may be that of a newer connection.
    if (found != by_address_.end() && found->second == gone.connection) by_address_.erase(found);
  }
  --peers_.find(gone.peer)->second.connections;
  std::swap(gone, watched_.back());
  watched_.pop_back();
  connection_count_ = std::ssize(watched_);
}

void Connections::RemoveClosed() {
  for (size_t i = watched_.size(); i-- > 0;) {
    if (!watched_[i].IsOpen()) Remove(i);
  }
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    const bool gone = peer->second.connections == 0 && !IsResting(peer->second);
    peer = gone ? peers_.erase(peer) : std::next(peer);
  }
  peer_count_ = std::ssize(peers_);
  last_removal_ = Clock::now();
}

void Connections::Measure(Watched& watched, double seconds) {
  const bool quiet = watched.connection->calls() == 0;
  if (watched.closing || (quiet && watched.quiet)) {
    watched.unfinished = 0;
    return;
  }
  // Reads `explained` before the received bytes: read later, it could be the larger one.
  const int64_t explained = watched.connection->explained();
  const int64_t received = BytesReceived(watched.socket);
  const auto step =
      static_cast<double>((received - watched.received) - (explained - watched.explained));
  watched.received = received;
  watched.explained = explained;
  watched.quiet = quiet;
  // Where no call is open nothing is unfinished.
  const double excess = watched.excess + step - kControlBytesPerSecond * seconds;
  const double least = std::min(watched.excess, 0.0);
  watched.excess = quiet ? least : std::max(least, excess);
  watched.unfinished = static_cast<int64_t>(std::max(0.0, watched.excess));
  if (watched.unfinished > limits_.peer_unfinished_bytes / 4) {
    watched.unfinished = std::max<int64_t>(0, watched.unfinished - BytesInSystem(watched.socket));
  }
}

milliseconds Connections::Sweep() {
  const milliseconds busy = ProcessorTime();
  const Clock::time_point begin = Clock::now();
  const double seconds = std::min(1.0, std::chrono::duration<double>(begin - last_sweep_).count());
  last_sweep_ = begin;
  if (begin - last_removal_ >= kAsleep) RemoveClosed();
  for (auto& [key, state] : peers_) state.unfinished = 0;
  int64_t unfinished = 0;
  for (size_t i = watched_.size(); i-- > 0;) {
    Watched& watched = watched_[i];
    if (watched.connection->calls() > 0 && !watched.IsOpen()) {
      Remove(i);
      continue;
    }
    Measure(watched, seconds);
    peers_[watched.peer].unfinished += watched.unfinished;
    unfinished += watched.unfinished;
  }
  unfinished_ = unfinished;
  CountClosed();
  Enforce();
  // Order matters: a call that begins now is either seen here or wakes this thread.
  ledger_->asleep = true;
  if (ledger_->calls == 0) return kAsleep;
  ledger_->asleep = false;
  return std::max(kSweep, (ProcessorTime() - busy) * kSweepShare);
}

bool Connections::CloseLargest(const PeerKey& peer, int64_t spared) {
  Watched* largest = nullptr;
  for (Watched& watched : watched_) {
    if (watched.unfinished <= spared || watched.peer != peer) continue;
    if (largest == nullptr || watched.unfinished > largest->unfinished) largest = &watched;
  }
  if (largest == nullptr) return false;
  // The descriptor is gRPC's. If it becomes another socket between this look and the next
  // line, a connection too many is closed.
  if (largest->IsOpen()) Reset(largest->socket);
  largest->closing = true;
  PeerState& state = peers_[peer];
  state.closed.push_back({largest->connection, largest->unfinished});
  state.closed_at = Clock::now();
  // It counts again at the next look, if it is still there.
  state.unfinished -= largest->unfinished;
  unfinished_ -= largest->unfinished;
  largest->unfinished = 0;
  ++closed_;
  return true;
}

void Connections::CountClosed() {
  for (auto& [key, state] : peers_) {
    state.closed_bytes = 0;
    if (!IsResting(state)) continue;
    for (const Closed& one : state.closed) state.closed_bytes += one.bytes;
    unfinished_ += state.closed_bytes;
  }
}

void Connections::Enforce() {
  for (auto& [key, state] : peers_) {
    if (state.unfinished + state.closed_bytes <= limits_.peer_unfinished_bytes) continue;
    while (CloseLargest(key, limits_.peer_unfinished_bytes / kSparedShare)) {
    }
  }
  EnforceTotal();
}

void Connections::EnforceTotal() {
  const auto senders =
      std::ranges::count_if(peers_, [](const auto& peer) { return peer.second.unfinished > 0; });
  const int64_t share = limits_.unfinished_bytes / (2 * std::max<int64_t>(1, senders));
  while (unfinished_ > limits_.unfinished_bytes) {
    const auto largest = std::ranges::max_element(
        peers_, {}, [](const auto& peer) { return peer.second.unfinished; });
    if (largest->second.unfinished <= share || !CloseLargest(largest->first, 0)) return;
  }
}

std::shared_ptr<Connection> Connections::Find(const PeerAddress& address) const {
  MutexLock lock(mutex_);
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? nullptr : found->second;
}

Connections::Counts Connections::counts() const {
  return {connection_count_, peer_count_, ledger_->calls, unfinished_, ledger_->held, closed_};
}

}  // namespace sparsefw::server
