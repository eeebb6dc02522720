// The control plane, over the job manager.
#ifndef SPARSEFW_SERVER_RPC_CALLS_PRUNE_SERVICE_H_
#define SPARSEFW_SERVER_RPC_CALLS_PRUNE_SERVICE_H_

#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/prune_service.grpc.pb.h"

namespace sparsefw::server {

// Thread-safe; the context outlives it.
class PruneServiceImpl final : public v1::PruneService::CallbackService {
 public:
  explicit PruneServiceImpl(RpcContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* rpc,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* CheckJobOptions(grpc::CallbackServerContext* rpc,
                                            const v1::CheckJobOptionsRequest* request,
                                            v1::CheckJobOptionsResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* rpc,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* rpc,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* rpc,
                                      const v1::DeleteJobRequest* request,
                                      google::protobuf::Empty* response) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* rpc,
                                                   const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* rpc,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerBidiReactor<v1::PruneRequest, v1::PruneResponse>* Prune(
      grpc::CallbackServerContext* rpc) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* rpc,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;

 private:
  RpcContext& context_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_PRUNE_SERVICE_H_
