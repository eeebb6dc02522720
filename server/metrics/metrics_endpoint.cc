#include "server/metrics/metrics_endpoint.h"

#include <microhttpd.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/net/descriptor.h"
#include "server/net/peer_address.h"
#include "sparsefw/mutex.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

// Every new connection gets a place. Where all are taken, the address with the most connections
// loses its oldest. So a slow or idle connection makes room for a probe, which needs its place for
// a moment only. A connection that takes too long for a request and its answer is closed too.
class HttpConnections final : public ConnectionGate {
 public:
  // refused: a connection gave its place up.
  HttpConnections(int64_t places, std::function<void()> refused)
      : places_(places), refused_(std::move(refused)) {}

  bool Add(const Descriptor& socket) override;
  std::chrono::milliseconds Sweep() override;

  // Thread-safe: a request has been answered; the descriptor will be closed.
  void Answered(int socket);
  void Closed(int socket);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kRequestTime{10'000};  // for a request and its answer
  struct Entry {
    PeerKey peer = {};
    Clock::time_point since;  // the last answer, or the beginning
    bool ending = false;
  };
  void End(int socket, Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t places_;
  const std::function<void()> refused_;
  Mutex mutex_;
  std::map<int, Entry> open_ ABSL_GUARDED_BY(mutex_);
};

// Connections that end are closed a moment later; until then there may be twice as many.
bool HttpConnections::Add(const Descriptor& socket) {
  const std::optional<PeerAddress> address = PeerAddressOf(socket.get());
  if (!address) return false;
  MutexLock lock(mutex_);
  if (std::ssize(open_) >= 2 * places_) return false;
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
  if (count < places_) return;
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
  refused_();
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
    if (!entry.ending && now - entry.since > kRequestTime) End(socket, entry);
  }
  return open_.empty() ? kRequestTime : kRequestTime / 10;
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

namespace {

// libmicrohttpd, not the exposer of prometheus-cpp: its civetweb gives each
// thread a fixed stack of 100 KiB, of which OpenBLAS' thread-local storage
// takes 60, and any error page overflows the rest.
constexpr unsigned kIdleSeconds = 10;

constexpr char kText[] = "text/plain; charset=utf-8";

using Header = std::pair<const char*, const char*>;

// Takes effect at once: what a request has for a body is not read.
MHD_Result Respond(MHD_Connection* connection, unsigned code, const std::string& body,
                   std::initializer_list<Header> more = {}, const char* type = kText) {
  MHD_Response* response = MHD_create_response_from_buffer(
      body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;  // out of memory: closes the connection
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : more) MHD_add_response_header(response, name, value);
  const MHD_Result result = MHD_queue_response(connection, code, response);
  MHD_destroy_response(response);
  return result;
}

MHD_Result RespondPage(MHD_Connection* connection, const MetricsEndpoint::Page& page) {
  constexpr Header kFresh = {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"};
  const char* type = page.content_type.c_str();
  if (page.policy.empty()) return Respond(connection, MHD_HTTP_OK, page.body(), {kFresh}, type);
  return Respond(connection, MHD_HTTP_OK, page.body(),
                 {kFresh,
                  {"Content-Security-Policy", page.policy.c_str()},
                  {"Referrer-Policy", "no-referrer"}},
                 type);
}

MHD_Result Answer(void* data, MHD_Connection* connection, const char* path, const char* method,
                  const char* /*version*/, const char* /*body*/, size_t* /*body_size*/,
                  void** /*state*/) {
  const auto& content = *static_cast<const MetricsEndpoint::Content*>(data);
  const std::string_view wanted = path;
  const auto page = content.pages.find(wanted);
  if (page == content.pages.end() && wanted != "/metrics" && wanted != "/healthz" &&
      wanted != "/readyz") {
    return Respond(connection, MHD_HTTP_NOT_FOUND,
                   "only /, /status.json, /metrics, /healthz and /readyz are here\n");
  }
  const std::string_view verb = method;
  if (verb != MHD_HTTP_METHOD_GET && verb != MHD_HTTP_METHOD_HEAD) {
    return Respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n",
                   {{MHD_HTTP_HEADER_ALLOW, "GET, HEAD"}});
  }
  if (page != content.pages.end()) return RespondPage(connection, page->second);
  if (wanted == "/metrics") return Respond(connection, MHD_HTTP_OK, content.metrics->Text());
  if (wanted == "/healthz") return Respond(connection, MHD_HTTP_OK, "ok\n");
  const std::string why = content.not_ready();
  return why.empty() ? Respond(connection, MHD_HTTP_OK, "ready\n")
                     : Respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE, why + "\n");
}

int SocketOf(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

// Called by the library for every connection that it has taken, before it closes it.
void NoteClosed(void* connections, MHD_Connection* connection, void** /*state*/,
                MHD_ConnectionNotificationCode code) {
  if (code != MHD_CONNECTION_NOTIFY_CLOSED) return;
  static_cast<HttpConnections*>(connections)->Closed(SocketOf(connection));
}

void NoteAnswered(void* connections, MHD_Connection* connection, void** /*state*/,
                  MHD_RequestTerminationCode /*code*/) {
  static_cast<HttpConnections*>(connections)->Answered(SocketOf(connection));
}

// Paths are compared as they come: unescaped, "/%00x" would be "/".
size_t KeepEscapes(void* /*data*/, MHD_Connection* /*connection*/, char* text) {
  return std::strlen(text);
}

absl::StatusOr<HostPort> Parse(std::string_view address) {
  if (const std::optional<HostPort> parsed = ParseHostPort(address)) return *parsed;
  return absl::InvalidArgumentError(absl::StrFormat(
      "the metrics address must be host:port with a port in [0, 65535]; got \"%s\"", address));
}

std::string Cannot(std::string_view address) {
  return absl::StrFormat("cannot serve metrics on %s", address);
}

absl::Status CheckLoopback(std::string_view address, bool loopback, bool public_allowed) {
  if (loopback || public_allowed) return absl::OkStatus();
  return Invalid("CONFIGURATION_INVALID",
                 "--metrics-listen %s can be reached from other machines, and metrics are served "
                 "in plain text to everybody: give --insecure-metrics to allow that",
                 address);
}

}  // namespace

absl::Status MetricsEndpoint::CheckAddress(std::string_view address, bool public_allowed) {
  SPARSEFW_ASSIGN_OR_RETURN(const HostPort wanted, Parse(address));
  SPARSEFW_ASSIGN_OR_RETURN(const bool loopback, IsLoopback(wanted, Cannot(address)));
  return CheckLoopback(address, loopback, public_allowed);
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    std::string_view address, bool public_allowed, Content content, std::function<void()> refused) {
  SPARSEFW_ASSIGN_OR_RETURN(const HostPort wanted, Parse(address));
  SPARSEFW_ASSIGN_OR_RETURN(ListenSockets sockets, Listen(wanted, Cannot(address)));
  SPARSEFW_RETURN_IF_ERROR(CheckLoopback(address, sockets.loopback, public_allowed));
  std::unique_ptr<MetricsEndpoint> endpoint(
      new MetricsEndpoint(absl::StrFormat("%s:%d", wanted.host, sockets.port), std::move(content)));
  SPARSEFW_RETURN_IF_ERROR(endpoint->Serve(std::move(sockets), std::move(refused)));
  return endpoint;
}

MetricsEndpoint::MetricsEndpoint(std::string address, Content content)
    : address_(std::move(address)), content_(std::move(content)) {}

MetricsEndpoint::~MetricsEndpoint() {
  acceptor_.reset();
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

absl::Status MetricsEndpoint::Serve(ListenSockets sockets, std::function<void()> refused) {
  // Half of what connections of gRPC leave: each port serves while the other has
  // too many. The library's own limit is never reached: version 0.9.75 locks up
  // where a connection that was added is beyond it.
  const int64_t share = ReservedDescriptors() / 2;
  connections_ = std::make_unique<HttpConnections>(share, refused);
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr,
      &Answer, &content_, MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(2 * share + 16),
      MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds, MHD_OPTION_NOTIFY_CONNECTION, &NoteClosed,
      connections_.get(), MHD_OPTION_NOTIFY_COMPLETED, &NoteAnswered, connections_.get(),
      MHD_OPTION_UNESCAPE_CALLBACK, &KeepEscapes, nullptr, MHD_OPTION_END);
  if (daemon_ == nullptr) return absl::UnavailableError("cannot start the HTTP server of metrics");
  ConnectionAcceptor::Options options = {.reserved_descriptors = share,
                                         .gate = connections_.get(),
                                         .accepted = {},
                                         .refused = std::move(refused)};
  options.accepted = [this](Descriptor connection) {
    const int socket = connection.Release();
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size);
    // The daemon closes it, also where it does not take it.
    if (MHD_add_connection(daemon_, socket, reinterpret_cast<sockaddr*>(&peer), size) != MHD_YES) {
      connections_->Closed(socket);
    }
  };
  SPARSEFW_ASSIGN_OR_RETURN(acceptor_,
                            ConnectionAcceptor::Start(std::move(sockets), std::move(options)));
  return absl::OkStatus();
}

}  // namespace sparsefw::server
