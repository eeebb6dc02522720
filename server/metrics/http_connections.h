// The connections of the metrics port.
#ifndef SPARSEFW_SERVER_METRICS_HTTP_CONNECTIONS_H_
#define SPARSEFW_SERVER_METRICS_HTTP_CONNECTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>

#include "server/net/connection_gate.h"
#include "server/net/peer_address.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Every new connection gets a place. Where all are taken, the address with the most connections
// loses its oldest. So a slow or idle connection makes room for a probe, which needs its place for
// a moment only. A connection that takes too long for a request and its answer is closed too.
class HttpConnections final : public ConnectionGate {
 public:
  struct Options {
    int64_t places = 1;
    std::chrono::milliseconds request_time{10'000};  // for a request and its answer
    std::function<void()> refused;                   // a connection gave its place up
  };
  explicit HttpConnections(Options options) : options_(std::move(options)) {}

  bool Add(const Descriptor& socket) override;
  std::chrono::milliseconds Sweep() override;

  // Thread-safe: a request has been answered; the descriptor will be closed.
  void Answered(int socket);
  void Closed(int socket);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    PeerKey peer = {};
    Clock::time_point since;  // the last answer, or the beginning
    bool ending = false;
  };
  void End(int socket, Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;
  std::map<int, Entry> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_HTTP_CONNECTIONS_H_
