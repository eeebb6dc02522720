#include "server/app/listener.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "server/app/config.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr int kMaxConcurrentStreams = 256;  // of one connection

// gRPC says only that it failed; the system says why.
std::string WhyNot(const HostPort& address) {
  std::string host = address.host;
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failure != 0) return gai_strerror(failure);
  std::string reason = "unknown reason";
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (fd >= 0) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0) {
      reason = std::generic_category().message(errno);
    }
    close(fd);
  }
  freeaddrinfo(found);
  return reason;
}

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
  // Two servers on one port would each get half of the calls, and half of the tensors.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  // Jobs can be silent for long: pings of either side keep a connection open,
  // and a client that sends many is not sent away.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const std::string& address,
                                                          RpcContext& context) {
  const std::optional<HostPort> wanted = ParseHostPort(address);
  if (!wanted) {
    return absl::InvalidArgumentError(absl::StrFormat("listen must be HOST:PORT; got %s", address));
  }
  InitPlugins();
  std::unique_ptr<Listener> listener(new Listener(context));
  grpc::ServerBuilder builder;
  Configure(builder);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&listener->tensor_service_);
  builder.RegisterService(&listener->prune_service_);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr || port == 0) {
    return WithReason(absl::UnavailableError(
                          absl::StrFormat("cannot listen on %s: %s", address, WhyNot(*wanted))),
                      "ADDRESS_UNAVAILABLE", {{"address", address}});
  }
  listener->address_ = absl::StrFormat("%s:%d", wanted->host, port);
  grpc::HealthCheckServiceInterface* health = listener->server_->GetHealthCheckService();
  for (const char* service :
       {"", v1::TensorService::service_full_name(), v1::PruneService::service_full_name()}) {
    health->SetServingStatus(service, true);
  }
  return listener;
}

void Listener::StopServing() { server_->GetHealthCheckService()->SetServingStatus(false); }

void Listener::Shutdown(absl::Duration timeout) {
  server_->Shutdown(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace sparsefw::server
