#include "server/metrics/metrics_endpoint.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "prometheus/exposer.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {
namespace {

struct HostPort {
  std::string host;
  std::string port;
};

// What more the HTTP library would take, several ports or options behind
// them, is not ours; and Debian's has no IPv6.
std::optional<HostPort> Parse(std::string_view address) {
  const size_t colon = address.find(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number > 65535 ||
      host.find_first_of(",+") != std::string_view::npos) {
    return std::nullopt;
  }
  return HostPort{std::string(host), std::string(port)};
}

// A socket for the address, as `use` (bind or connect) leaves it: OK or the system's error.
template <typename Use>
absl::Status Try(const HostPort& address, const std::string& message, const Use& use) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", message, gai_strerror(error)));
  }
  const absl::Cleanup free_addresses = [found] { freeaddrinfo(found); };
  const int probe = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
  if (probe < 0) return absl::ErrnoToStatus(errno, message);
  const absl::Cleanup close_probe = [probe] { close(probe); };
  if (use(probe, found->ai_addr, found->ai_addrlen) != 0) {
    return absl::ErrnoToStatus(errno, message);
  }
  return absl::OkStatus();
}

// The HTTP library says only that it failed: try the same and ask the system why.
absl::Status WhyNot(const HostPort& parsed, std::string_view address) {
  const std::string message = absl::StrFormat("cannot serve metrics on %s", address);
  const absl::Status error = Try(parsed, message, [](int probe, const sockaddr* at, socklen_t n) {
    const int yes = 1;
    setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    return bind(probe, at, n) != 0 ? -1 : listen(probe, 1);
  });
  return error.ok() ? absl::UnavailableError(message) : error;
}

class ExposerEndpoint final : public MetricsEndpoint {
 public:
  ExposerEndpoint(const HostPort& wanted, std::unique_ptr<prometheus::Exposer> exposer,
                  std::vector<std::shared_ptr<prometheus::Collectable>> collectables)
      : collectables_(std::move(collectables)),
        exposer_(std::move(exposer)),
        port_(exposer_->GetListeningPorts().at(0)),
        bound_{wanted.host, std::to_string(port_)},
        address_(absl::StrFormat("%s:%d", wanted.host, port_)) {
    for (const auto& collectable : collectables_) exposer_->RegisterCollectable(collectable);
  }
  ~ExposerEndpoint() override;
  const std::string& address() const override { return address_; }
  int port() const override { return port_; }

 private:
  // The exposer holds them weakly.
  const std::vector<std::shared_ptr<prometheus::Collectable>> collectables_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  const int port_;
  const HostPort bound_;
  const std::string address_;
};

// The HTTP library's listening thread looks every two seconds whether it
// should end, and whenever somebody connects: connect until it has ended.
ExposerEndpoint::~ExposerEndpoint() {
  Mutex mutex;
  CondVar condition;
  bool ended = false;
  std::thread stop([&] {
    exposer_.reset();
    MutexLock lock(mutex);
    ended = true;
    condition.NotifyAll();
  });
  mutex.Lock();
  while (!ended) {
    mutex.Unlock();
    // Refused once it has ended, which is as well.
    Try(bound_, "", connect).IgnoreError();
    mutex.Lock();
    if (!ended) condition.WaitFor(mutex, std::chrono::milliseconds(10));
  }
  mutex.Unlock();
  stop.join();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    std::string_view address, const PrometheusMetrics* metrics) {
  const std::optional<HostPort> parsed = Parse(address);
  if (!parsed) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the metrics address must be host:port, not IPv6, with a port in [0, 65535]; got \"%s\"",
        address));
  }
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", std::string(address), "num_threads", "2"});
    return std::make_unique<ExposerEndpoint>(*parsed, std::move(exposer), metrics->collectables());
  } catch (const std::exception&) {
    return WhyNot(*parsed, address);
  }
}

}  // namespace sparsefw::server
