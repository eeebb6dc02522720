// grpc.health.v1, for probes.
#ifndef SPARSEFW_SERVER_RPC_STANDARD_HEALTH_SERVICE_H_
#define SPARSEFW_SERVER_RPC_STANDARD_HEALTH_SERVICE_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "health.pb.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/runtime/service.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

class HealthCall;

// Replaces gRPC's own, which reads whole messages of any size from anybody. Open to all, since
// probes have no credentials. Its calls are neither logged nor counted, except against the limits
// of their peer. Thread-safe.
class HealthService final : public Service {
 public:
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  explicit HealthService(RpcContext& context);

  // NOT_SERVING from now on; watches are told.
  void StopServing();
  // Ends calls whose request does not come; once a second.
  void Tick();
  // Ends every call, and from now on every new one.
  void Shutdown();

 private:
  friend class HealthCall;

  Status StatusOf(std::string_view service) const;
  bool Add(const std::shared_ptr<HealthCall>& call);
  void Remove(const std::shared_ptr<HealthCall>& call);
  std::set<std::shared_ptr<HealthCall>> calls() const;

  RpcContext& context_;
  mutable Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = true;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<HealthCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_STANDARD_HEALTH_SERVICE_H_
