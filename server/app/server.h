// The composition root: chooses the implementations, wires them together,
// starts and drains them.
#ifndef SPARSEFW_SERVER_APP_SERVER_H_
#define SPARSEFW_SERVER_APP_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "server/app/config.h"
#include "server/app/observe/logging.h"
#include "server/jobs/job_manager.h"
#include "server/net/fair_semaphore.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/tensors/tensor_store.h"

namespace sparsefw::server {

// A running server. Thread-safe. Several may live in one process.
class Server {
 public:
  // Serves when it returns. The logger outlives the server.
  // Errors: InvalidArgument     a file of certificates, tokens or tenants cannot be used,
  //                             or plain text would be served on a public address
  //                             (CONFIGURATION_INVALID)
  //         Unavailable         an address cannot be listened on (ADDRESS_UNAVAILABLE)
  //         FailedPrecondition  the device is not there (DEVICE_UNAVAILABLE);
  //                             the spool folder or the state folder is in use; the
  //                             database is not ours, or newer (STORE_VERSION)
  //         PermissionDenied / Internal  the state folder cannot be made
  //         what Database::Open and JobManager::Recover say
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerConfig& config, Logger* logger);
  virtual ~Server() = default;  // drains with no grace

  // "127.0.0.1:50051", with the ports that were picked.
  virtual const std::string& address() const = 0;
  virtual const std::string& metrics_address() const = 0;
  virtual const std::string& device() const = 0;

  // Health says NOT_SERVING and new work is refused. Running jobs go on for at
  // most `grace`; what becomes of them and of queued ones then, JobManager::Drain
  // says. Who watches them is told and may read the results of those that ended for
  // at most the configuration's fetch_grace. Then every RPC is
  // finished and the listener closed. Returns within both and a few seconds, at
  // once when nothing runs and nobody is connected with a call. Later calls wait for the first and
  // do nothing.
  virtual void Drain(absl::Duration grace) = 0;

  // Reads the files of certificates, tokens and tenants anew. One that cannot be used
  // is logged, and what was read before stays in force.
  virtual void Reload() = 0;

  // A connection that needs no socket.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;

  // The parts, for tests.
  virtual TensorStore& tensors() = 0;
  virtual JobManager& jobs() = 0;
  virtual FairSemaphore& staging() = 0;
  virtual ReactorRegistry& calls() = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_SERVER_H_
