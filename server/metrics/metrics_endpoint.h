// The HTTP endpoint of operators: /metrics for Prometheus, /healthz, /readyz and pages.
#ifndef SPARSEFW_SERVER_METRICS_METRICS_ENDPOINT_H_
#define SPARSEFW_SERVER_METRICS_METRICS_ENDPOINT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"
#include "server/net/connection_acceptor.h"

struct MHD_Daemon;

namespace sparsefw::server {

class HttpConnections;

// Serves until it is destroyed, on threads of its own. No authentication: bind
// it to loopback or to a private network.
//
// One thread serves all connections without blocking on any. They are closed
// after 10 s of silence or 10 s without a whole request and its answer, and at once where
// too few descriptors are left. Half of ReservedDescriptors() have a place; whoever comes
// then takes that of the oldest connection of the address with most. GET and HEAD:
//   /metrics  200
//   /healthz  200 while the process runs
//   /readyz   200 while new work is accepted, otherwise 503 and the reason
//   pages     200
// Another method: 405; another path: 404; what is not HTTP: 400.
class MetricsEndpoint {
 public:
  // Why the server accepts no work now; empty: it does. Called on the endpoint's
  // thread: it must not block.
  using NotReady = std::function<std::string()>;

  struct Page {
    std::string content_type;
    std::string policy;                 // Content-Security-Policy; may be empty
    std::function<std::string()> body;  // called on the endpoint's thread: it must not block
  };
  struct Content {
    const Metrics* metrics = nullptr;  // outlives the endpoint
    NotReady not_ready;
    std::map<std::string, Page, std::less<>> pages = {};  // by path
  };

  // What Start would refuse of the address, before anything is opened.
  static absl::Status CheckAddress(std::string_view address, bool public_allowed);

  // address: "host:port"; port 0 takes a free one. public_allowed: also one that other
  // machines can reach. refused: called on an own
  // thread when a connection is closed for want of file descriptors or of a place.
  // Errors: InvalidArgument  the address has no such form, or is public and must not be
  //                          (CONFIGURATION_INVALID)
  //         what the system says of listening there: FailedPrecondition for a
  //         port in use, PermissionDenied, ...
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(std::string_view address,
                                                                bool public_allowed,
                                                                Content content,
                                                                std::function<void()> refused);
  ~MetricsEndpoint();

  const std::string& address() const { return address_; }  // with the port it really has

 private:
  MetricsEndpoint(std::string address, Content content);
  absl::Status Serve(ListenSockets sockets, std::function<void()> refused);

  const std::string address_;
  Content content_;
  std::unique_ptr<HttpConnections> connections_;
  MHD_Daemon* daemon_ = nullptr;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_METRICS_ENDPOINT_H_
