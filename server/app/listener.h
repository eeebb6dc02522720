// The gRPC server: address, limits, services.
#ifndef SPARSEFW_SERVER_APP_LISTENER_H_
#define SPARSEFW_SERVER_APP_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "server/net/connection_acceptor.h"
#include "server/net/connections.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/services.h"
#include "server/rpc/standard/health_service.h"

namespace sparsefw::server {

class Listener {
 public:
  struct Options {
    std::string address;                                   // HOST:PORT
    std::shared_ptr<grpc::ServerCredentials> credentials;  // null: plain text
    bool insecure = false;               // plain text also where other machines can connect
    int64_t memory_bytes = 0;            // what gRPC may take for what comes in, of all connections
    Connections* connections = nullptr;  // outlives the listener
    // Called on an own thread when a connection is closed at once: there are too many.
    std::function<void()> refused;
  };
  // What Start would refuse of the address, before anything is opened.
  // Errors: InvalidArgument (CONFIGURATION_INVALID): plain text on a public address
  //         Unavailable (ADDRESS_UNAVAILABLE): the host has no such address
  static absl::Status CheckAddress(const std::string& address, bool plain_text, bool insecure);
  // The context outlives the listener.
  // Errors: Unavailable (ADDRESS_UNAVAILABLE)
  //         InvalidArgument (CONFIGURATION_INVALID): plain text on a public address
  static absl::StatusOr<std::unique_ptr<Listener>> Start(Options options, RpcContext& context);

  const std::string& address() const { return address_; }
  grpc::Server& server() { return *server_; }

  // Health reports NOT_SERVING from now on; RPCs continue.
  void StopServing() { health_service_.StopServing(); }
  // Ends health checks that do not go on; once a second.
  void Tick() { health_service_.Tick(); }
  // Every reactor but those of health checks must have finished. Connections that are left after
  // `timeout` are cancelled.
  void Shutdown(absl::Duration timeout);

 private:
  explicit Listener(RpcContext& context)
      : tensor_service_(context),
        prune_service_(context),
        health_service_(context),
        reflection_service_(context),
        unknown_service_(context) {}
  absl::Status Serve(ListenSockets sockets, Options options);

  TensorServiceImpl tensor_service_;
  PruneServiceImpl prune_service_;
  HealthService health_service_;
  ReflectionService reflection_service_;
  UnknownService unknown_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // ends before what it hands connections to
  std::string address_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_LISTENER_H_
