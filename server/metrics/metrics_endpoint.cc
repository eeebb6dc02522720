#include "server/metrics/metrics_endpoint.h"

#include <microhttpd.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "prometheus/collectable.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/http_connections.h"
#include "server/net/connection_acceptor.h"
#include "server/net/descriptor_limit.h"
#include "server/net/listen_sockets.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// libmicrohttpd, not the exposer of prometheus-cpp: its civetweb gives each
// thread a fixed stack of 100 KiB, of which OpenBLAS' thread-local storage
// takes 60, and any error page overflows the rest.
constexpr unsigned kIdleSeconds = 10;

using Collectables = std::vector<std::shared_ptr<prometheus::Collectable>>;

std::string Text(const Collectables& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    for (prometheus::MetricFamily& family : collectable->Collect()) {
      families.push_back(std::move(family));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

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

struct Served {
  Collectables collectables;
  MetricsEndpoint::Content content;
};

MHD_Result Answer(void* data, MHD_Connection* connection, const char* path, const char* method,
                  const char* /*version*/, const char* /*body*/, size_t* /*body_size*/,
                  void** /*state*/) {
  const auto& served = *static_cast<const Served*>(data);
  const std::string_view wanted = path;
  const auto page = served.content.pages.find(wanted);
  if (page == served.content.pages.end() && wanted != "/metrics" && wanted != "/healthz" &&
      wanted != "/readyz") {
    return Respond(connection, MHD_HTTP_NOT_FOUND,
                   "only /, /status.json, /metrics, /healthz and /readyz are here\n");
  }
  const std::string_view verb = method;
  if (verb != MHD_HTTP_METHOD_GET && verb != MHD_HTTP_METHOD_HEAD) {
    return Respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n",
                   {{MHD_HTTP_HEADER_ALLOW, "GET, HEAD"}});
  }
  if (page != served.content.pages.end()) return RespondPage(connection, page->second);
  if (wanted == "/metrics") return Respond(connection, MHD_HTTP_OK, Text(served.collectables));
  if (wanted == "/healthz") return Respond(connection, MHD_HTTP_OK, "ok\n");
  const std::string why = served.content.not_ready();
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

class HttpEndpoint final : public MetricsEndpoint {
 public:
  HttpEndpoint(const HostPort& wanted, int port, Served served)
      : served_(std::move(served)),
        port_(port),
        address_(absl::StrFormat("%s:%d", wanted.host, port)) {}
  ~HttpEndpoint() override {
    acceptor_.reset();
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  absl::Status Serve(ListenSockets sockets, std::function<void()> refused);

  const std::string& address() const override { return address_; }
  int port() const override { return port_; }

 private:
  Served served_;
  const int port_;
  const std::string address_;
  std::unique_ptr<HttpConnections> connections_;
  MHD_Daemon* daemon_ = nullptr;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

absl::Status HttpEndpoint::Serve(ListenSockets sockets, std::function<void()> refused) {
  // Half of what connections of gRPC leave: each port serves while the other has
  // too many. The library's own limit is never reached: version 0.9.75 locks up
  // where a connection that was added is beyond it.
  const int64_t share = ReservedDescriptors() / 2;
  connections_ = std::make_unique<HttpConnections>(
      HttpConnections::Options{.places = share, .refused = refused});
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr,
      &Answer, &served_, MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(2 * share + 16),
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
  auto endpoint = std::make_unique<HttpEndpoint>(
      wanted, sockets.port, Served{content.metrics->collectables(), std::move(content)});
  SPARSEFW_RETURN_IF_ERROR(endpoint->Serve(std::move(sockets), std::move(refused)));
  return endpoint;
}

}  // namespace sparsefw::server
