// The composition root: chooses the implementations, wires them together,
// starts and drains them.
#ifndef SPARSEFW_SERVER_APP_SERVER_H_
#define SPARSEFW_SERVER_APP_SERVER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "server/app/access.h"
#include "server/app/config.h"
#include "server/app/listener.h"
#include "server/app/observe/events.h"
#include "server/app/observe/job_counts.h"
#include "server/app/observe/logging.h"
#include "server/app/resources.h"
#include "server/app/stores.h"
#include "server/jobs/job_manager.h"
#include "server/metrics/gpu_monitor.h"
#include "server/metrics/metrics.h"
#include "server/metrics/metrics_endpoint.h"
#include "server/net/fair_semaphore.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/runner/solver_runner.h"
#include "server/status/live_jobs.h"
#include "server/status/refusals.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/mutex.h"

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
  ~Server();  // drains with no grace

  // "127.0.0.1:50051", with the ports that were picked.
  const std::string& address() const { return listener_->address(); }
  const std::string& metrics_address() const { return endpoint_->address(); }
  const std::string& device() const { return context_.facts.info.default_device(); }

  // Health says NOT_SERVING and new work is refused. Running jobs go on for at
  // most `grace`; what becomes of them and of queued ones then, JobManager::Drain
  // says. Who watches them is told and may read the results of those that ended for
  // at most the configuration's fetch_grace. Then every RPC is
  // finished and the listener closed. Returns within both and a few seconds, at
  // once when nothing runs and nobody is connected with a call. Later calls wait for the first and
  // do nothing.
  void Drain(absl::Duration grace) { Drain(grace, config_.fetch_grace); }

  // Reads the files of certificates, tokens and tenants anew. One that cannot be used
  // is logged, and what was read before stays in force.
  void Reload() { PollAccess(true); }

  // A connection that needs no socket.
  std::shared_ptr<grpc::Channel> InProcessChannel() {
    return listener_->server().InProcessChannel(grpc::ChannelArguments());
  }

  // The parts, for tests.
  TensorStore& tensors() { return stores_->tensors(); }
  JobManager& jobs() { return *jobs_; }
  FairSemaphore& staging() { return staging_; }
  ReactorRegistry& calls() { return registry_; }

 private:
  Server(const ServerConfig& config, Logger* logger) : config_(config), logger_(*logger) {}
  absl::Status Open();
  absl::Status OpenPorts();
  std::string Status();  // the JSON of the status page
  void OpenJobs(const DefaultDevice& device);
  // No device is left that may run jobs for the default one.
  bool DevicesLost() const;
  absl::Status RecoverJobs();
  void CheckHealth();
  std::string NotReady() const;
  void FillContext(const DefaultDevice& device);
  Gauges ComputeGauges();
  void StartPeriodicWork();
  void CollectGarbage();
  void ReturnMemory();
  void PollAccess(bool all);
  void Drain(absl::Duration grace, absl::Duration fetch_grace);
  void AwaitFetches(absl::Duration grace);

  // Each may use those above it.
  const ServerConfig config_;
  Logger& logger_;
  std::unique_ptr<Access> access_;
  const LimitsOfTenant limits_of_ = [this](std::string_view tenant) {
    return access_->authenticator().LimitsOf(tenant);
  };
  FairSemaphore staging_{config_.staging_memory_bytes};
  Connections connections_{ConnectionLimits(config_)};
  int64_t closed_connections_ = 0;  // of them, at the last ReturnMemory
  ReactorRegistry registry_;
  std::unique_ptr<Stores> stores_;
  ResultFetches fetches_{config_.fetch_grace, RealClock()};
  std::unique_ptr<GpuMonitor> gpu_monitor_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<ConnectionEvents> connection_events_;
  std::unique_ptr<SolverRunner> runner_;
  LiveJobs live_jobs_;
  Refusals refusals_;
  std::unique_ptr<JobEvents> events_;
  std::unique_ptr<JobCounts> job_counts_;
  // Device memory of the default's pool; empty when the default is a host backend.
  std::set<std::string> default_devices_;
  // A job may lose its device before the port is open.
  mutable Mutex health_mutex_;
  Listener* serving_ ABSL_GUARDED_BY(health_mutex_) = nullptr;
  std::unique_ptr<JobManager> jobs_;
  Timer timer_;
  // Both wait for the disk, but for no call, and not for each other.
  Timer access_timer_;
  Timer garbage_timer_;
  RpcContext context_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<MetricsEndpoint> endpoint_;
  int64_t solve_memory_bytes_ = 0;

  Mutex drain_mutex_;
  bool drained_ ABSL_GUARDED_BY(drain_mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_SERVER_H_
