#include "server/app/listener.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "server/net/descriptor_limit.h"
#include "server/net/listen_sockets.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr int kMaxConcurrentStreams = 256;  // of one connection

// Once a process, before the first server.
void InitPlugins() {
  static const bool done = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(done);
}

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
  // Calls can be silent for a long time: pings of either side keep the connection
  // open, and frequent pings of a client are tolerated.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const std::string& address,
                                                          RpcContext& context,
                                                          std::function<void()> refused) {
  const std::optional<HostPort> wanted = ParseHostPort(address);
  if (!wanted) {
    return absl::InvalidArgumentError(absl::StrFormat("listen must be HOST:PORT; got %s", address));
  }
  absl::StatusOr<ListenSockets> sockets =
      Listen(*wanted, absl::StrFormat("cannot listen on %s", address));
  if (!sockets.ok()) {
    return WithReason(absl::UnavailableError(sockets.status().message()), "ADDRESS_UNAVAILABLE",
                      {{"address", address}});
  }
  InitPlugins();
  std::unique_ptr<Listener> listener(new Listener(context));
  listener->address_ = absl::StrFormat("%s:%d", wanted->host, sockets->port);
  SPARSEFW_RETURN_IF_ERROR(listener->Serve(*std::move(sockets), std::move(refused)));
  return listener;
}

absl::Status Listener::Serve(ListenSockets sockets, std::function<void()> refused) {
  grpc::ServerBuilder builder;
  Configure(builder);
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.RegisterService(&tensor_service_);
  builder.RegisterService(&prune_service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC cannot start a server");
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  for (const char* service :
       {"", v1::TensorService::service_full_name(), v1::PruneService::service_full_name()}) {
    health->SetServingStatus(service, true);
  }
  ConnectionAcceptor::Options options = {
      .reserved_descriptors = ReservedDescriptors(), .accepted = {}, .refused = std::move(refused)};
  options.accepted = [connections = connections_.get()](Descriptor connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection.Release();  // gRPC closes it
    connections->HandleNewConnection(&parameters);
  };
  SPARSEFW_ASSIGN_OR_RETURN(acceptor_,
                            ConnectionAcceptor::Start(std::move(sockets), std::move(options)));
  return absl::OkStatus();
}

void Listener::StopServing() { server_->GetHealthCheckService()->SetServingStatus(false); }

void Listener::Shutdown(absl::Duration timeout) {
  acceptor_.reset();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace sparsefw::server
