#include "server/app/listener.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "grpcpp/resource_quota.h"
#include "server/net/descriptor.h"
#include "server/net/listen_sockets.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int kMaxConcurrentStreams = 256;  // of one connection
constexpr int kMaxPingStrikes = 2;
constexpr int kHandshakeMs = 20'000;
constexpr int kIdleConnectionMs = 15 * 60'000;
constexpr int kOldConnectionMs = 60 * 60'000;

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // gRPC inflates a message before it looks at its size: 400 KB on the wire may
  // be 400 MiB. Tensors hardly compress; a compressed message is refused.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  // A stream may send 64 KiB before it is read. Probing would raise that with the bandwidth of the
  // line, also for callers who are not known yet.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Calls can be silent for a long time: pings of either side keep the connection
  // open. A client may ping every five seconds; one that pings faster than that, while
  // nothing is sent to it, is disconnected at the third such ping (ENHANCE_YOUR_CALM).
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  // Our own pings have no limit: they must not stop.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection that says nothing holds a descriptor: no longer than this before TLS
  // and HTTP/2 have begun, and between calls.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
  // Clients come back with a new handshake, and so meet the certificates and the CA
  // of now; calls under way go on.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kOldConnectionMs);
}

absl::StatusOr<HostPort> Parse(const std::string& address) {
  if (const std::optional<HostPort> parsed = ParseHostPort(address)) return *parsed;
  return absl::InvalidArgumentError(absl::StrFormat("listen must be HOST:PORT; got %s", address));
}

std::string Cannot(const std::string& address) {
  return absl::StrFormat("cannot listen on %s", address);
}

absl::Status Unavailable(const std::string& address, const absl::Status& why) {
  return WithReason(absl::UnavailableError(why.message()), "ADDRESS_UNAVAILABLE",
                    {{"address", address}});
}

absl::Status PlainTextInPublic(const std::string& address) {
  return Invalid("CONFIGURATION_INVALID",
                 "--listen %s can be reached from other machines: give --tls-cert and --tls-key, "
                 "or --insecure to serve plain text there",
                 address);
}

}  // namespace

absl::Status Listener::CheckAddress(const std::string& address, bool plain_text, bool insecure) {
  SPARSEFW_ASSIGN_OR_RETURN(const HostPort wanted, Parse(address));
  const absl::StatusOr<bool> loopback = IsLoopback(wanted, Cannot(address));
  if (!loopback.ok()) return Unavailable(address, loopback.status());
  return *loopback || !plain_text || insecure ? absl::OkStatus() : PlainTextInPublic(address);
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(Options options, RpcContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const HostPort wanted, Parse(options.address));
  absl::StatusOr<ListenSockets> sockets = Listen(wanted, Cannot(options.address));
  if (!sockets.ok()) return Unavailable(options.address, sockets.status());
  // Again, of what the port is now.
  if (!sockets->loopback && options.credentials == nullptr && !options.insecure) {
    return PlainTextInPublic(options.address);
  }
  std::unique_ptr<Listener> listener(new Listener(context));
  listener->address_ = absl::StrFormat("%s:%d", wanted.host, sockets->port);
  SPARSEFW_RETURN_IF_ERROR(listener->Serve(*std::move(sockets), std::move(options)));
  return listener;
}

absl::Status Listener::Serve(ListenSockets sockets, Options options) {
  grpc::ServerBuilder builder;
  Configure(builder);
  // Behind Connections, which looks at peers: where that is too slow, gRPC cancels calls.
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(options.memory_bytes));
  builder.SetResourceQuota(quota);
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options.credentials != nullptr ? options.credentials : grpc::InsecureServerCredentials());
  builder.RegisterService(&tensor_service_);
  builder.RegisterService(&prune_service_);
  builder.RegisterService(&health_service_);
  builder.RegisterService(&reflection_service_);
  builder.RegisterCallbackGenericService(&unknown_service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC cannot start a server");
  ConnectionAcceptor::Options acceptor = {.reserved_descriptors = ReservedDescriptors(),
                                          .gate = options.connections,
                                          .accepted = {},
                                          .refused = std::move(options.refused)};
  acceptor.accepted = [connections = connections_.get()](Descriptor connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection.Release();  // gRPC closes it
    connections->HandleNewConnection(&parameters);
  };
  SPARSEFW_ASSIGN_OR_RETURN(acceptor_,
                            ConnectionAcceptor::Start(std::move(sockets), std::move(acceptor)));
  return absl::OkStatus();
}

void Listener::Shutdown(absl::Duration timeout) {
  acceptor_.reset();
  health_service_.Shutdown();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace sparsefw::server
