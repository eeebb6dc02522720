#include "server/metrics/http_connections.h"

#include <sys/socket.h>

#include <iterator>
#include <optional>

namespace sparsefw::server {

// Connections that end are closed a moment later; until then there may be twice as many.
bool HttpConnections::Add(const Descriptor& socket) {
  const std::optional<PeerAddress> address = PeerAddressOf(socket.get());
  if (!address) return false;
  MutexLock lock(mutex_);
  if (std::ssize(open_) >= 2 * options_.places) return false;
  MakeRoom();
  open_[socket.get()] = {PeerKeyOf(*address), Clock::now()};
  return true;
}

void HttpConnections::MakeRoom() {
  int64_t count = 0;
  std::map<PeerKey, int64_t> of_peer;
  for (const auto& [socket, entry] : open_) {
    if (entry.ending) continue;
    ++count;
    ++of_peer[entry.peer];
  }
  if (count < options_.places) return;
  const auto has_more = [&of_peer](const Entry& a, const Entry& b) {
    const int64_t more = of_peer[a.peer] - of_peer[b.peer];
    return more != 0 ? more > 0 : a.since < b.since;
  };
  auto first = open_.end();
  for (auto one = open_.begin(); one != open_.end(); ++one) {
    if (one->second.ending) continue;
    if (first == open_.end() || has_more(one->second, first->second)) first = one;
  }
  End(first->first, first->second);
  options_.refused();
}

// The descriptor is open for as long as it is in open_: Closed comes before it is closed.
void HttpConnections::End(int socket, Entry& entry) {
  entry.ending = true;
  shutdown(socket, SHUT_RDWR);
}

std::chrono::milliseconds HttpConnections::Sweep() {
  const Clock::time_point now = Clock::now();
  MutexLock lock(mutex_);
  for (auto& [socket, entry] : open_) {
    if (!entry.ending && now - entry.since > options_.request_time) End(socket, entry);
  }
  return open_.empty() ? options_.request_time : options_.request_time / 10;
}

void HttpConnections::Answered(int socket) {
  MutexLock lock(mutex_);
  const auto found = open_.find(socket);
  if (found != open_.end()) found->second.since = Clock::now();
}

void HttpConnections::Closed(int socket) {
  MutexLock lock(mutex_);
  open_.erase(socket);
}

}  // namespace sparsefw::server
