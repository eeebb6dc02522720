#include "server/rpc/calls/prune_service.h"

#include <algorithm>
#include <memory>

#include "server/rpc/calls/announced_inputs.h"
#include "server/rpc/calls/prune_call.h"
#include "server/rpc/calls/server_info.h"
#include "server/rpc/calls/tenant_view.h"
#include "server/rpc/calls/watch_call.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/rpc/runtime/call.h"
#include "server/rpc/runtime/traceparent.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

using google::protobuf::Empty;

// While draining the manager refuses what is new, and still answers what repeats.
absl::StatusOr<v1::Job> CreateJobIn(RpcContext& context, const std::string& tenant,
                                    const std::string& traceparent,
                                    const v1::CreateJobRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(request.owner()));
  SPARSEFW_ASSIGN_OR_RETURN(JobSpec parsed, FromProto(request.spec()));
  parsed.traceparent = traceparent;
  SPARSEFW_RETURN_IF_ERROR(CheckPriority(*context.authenticator, tenant, parsed));
  SPARSEFW_ASSIGN_OR_RETURN(
      const Job job, WithInputs(*context.tensors, tenant, parsed, [&](const JobSpec& spec) {
        return context.jobs->Submit(spec, request.request_id(), FingerprintOf(request),
                                    Owner{tenant, request.owner()}, request.validate_only());
      }));
  return ToProto(job);
}

absl::StatusOr<v1::CheckJobOptionsResponse> CheckJobOptionsIn(
    RpcContext& context, const std::string& tenant, const v1::CheckJobOptionsRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const JobSpec parsed, FromProto(request.spec()));
  SPARSEFW_RETURN_IF_ERROR(CheckPriority(*context.authenticator, tenant, parsed));
  SPARSEFW_ASSIGN_OR_RETURN(const InputSpecs inputs, AnnouncedInputs(parsed, request));
  SPARSEFW_RETURN_IF_ERROR(WithInputs(*context.tensors, tenant, parsed, [&](const JobSpec& spec) {
    return context.jobs->Check(spec, inputs);
  }));
  return v1::CheckJobOptionsResponse();
}

// Labels and errors can make a job large: a page that would not fit a message
// is asked for again, smaller, so that its token is right.
absl::StatusOr<v1::ListJobsResponse> ListJobsIn(RpcContext& context, const std::string& tenant,
                                                const v1::ListJobsRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(int page_size, PageSize(request.page_size()));
  SPARSEFW_ASSIGN_OR_RETURN(JobFilter filter, FilterFromProto(request));
  filter.tenant = tenant;
  while (true) {
    SPARSEFW_ASSIGN_OR_RETURN(const JobStore::Page page,
                              context.jobs->List(filter, page_size, request.page_token()));
    v1::ListJobsResponse response;
    for (const Job& job : page.jobs) *response.add_jobs() = ToProto(job);
    response.set_next_page_token(page.next_page_token);
    if (response.ByteSizeLong() <= size_t{kMaxChunkBytes} || page_size == 1) return response;
    page_size = std::max(1, std::min(page_size, response.jobs_size()) / 2);
  }
}

absl::StatusOr<v1::Job> JobToProto(const absl::StatusOr<Job>& job) {
  if (!job.ok()) return job.status();
  return ToProto(*job);
}

}  // namespace

grpc::ServerUnaryReactor* PruneServiceImpl::CreateJob(grpc::CallbackServerContext* rpc,
                                                      const v1::CreateJobRequest* request,
                                                      v1::Job* response) {
  return RunUnary(
      context_, "PruneService/CreateJob", rpc, request, response, context_.control_executor,
      [this, request = *request, traceparent = TraceparentOf(*rpc)](const std::string& tenant) {
        return CreateJobIn(context_, tenant, traceparent, request);
      });
}

grpc::ServerUnaryReactor* PruneServiceImpl::CheckJobOptions(
    grpc::CallbackServerContext* rpc, const v1::CheckJobOptionsRequest* request,
    v1::CheckJobOptionsResponse* response) {
  return RunUnary(context_, "PruneService/CheckJobOptions", rpc, request, response,
                  context_.control_executor, [this, request = *request](const std::string& tenant) {
                    return CheckJobOptionsIn(context_, tenant, request);
                  });
}

grpc::ServerUnaryReactor* PruneServiceImpl::GetJob(grpc::CallbackServerContext* rpc,
                                                   const v1::GetJobRequest* request,
                                                   v1::Job* response) {
  return RunUnary(context_, "PruneService/GetJob", rpc, request, response, context_.store_executor,
                  [this, name = request->name()](const std::string& tenant) {
                    return JobToProto(
                        WithJob(*context_.jobs, tenant, name,
                                [this](std::string_view key) { return context_.jobs->Get(key); }));
                  });
}

grpc::ServerUnaryReactor* PruneServiceImpl::ListJobs(grpc::CallbackServerContext* rpc,
                                                     const v1::ListJobsRequest* request,
                                                     v1::ListJobsResponse* response) {
  return RunUnary(context_, "PruneService/ListJobs", rpc, request, response,
                  context_.store_executor, [this, request = *request](const std::string& tenant) {
                    return ListJobsIn(context_, tenant, request);
                  });
}

// Also deletes the files of its results.
grpc::ServerUnaryReactor* PruneServiceImpl::DeleteJob(grpc::CallbackServerContext* rpc,
                                                      const v1::DeleteJobRequest* request,
                                                      Empty* response) {
  return RunUnary(
      context_, "PruneService/DeleteJob", rpc, request, response, context_.data_executor,
      [this, name = request->name()](const std::string& tenant) -> absl::StatusOr<Empty> {
        SPARSEFW_RETURN_IF_ERROR(
            WithJob(*context_.jobs, tenant, name,
                    [this](std::string_view key) { return context_.jobs->Delete(key); }));
        return Empty();
      });
}

grpc::ServerWriteReactor<v1::JobEvent>* PruneServiceImpl::WatchJob(
    grpc::CallbackServerContext* rpc, const v1::WatchJobRequest* request) {
  auto call = std::make_shared<WatchCall>(context_, rpc);
  call->Start(*request);
  return call.get();
}

grpc::ServerUnaryReactor* PruneServiceImpl::CancelJob(grpc::CallbackServerContext* rpc,
                                                      const v1::CancelJobRequest* request,
                                                      v1::Job* response) {
  return RunUnary(
      context_, "PruneService/CancelJob", rpc, request, response, context_.store_executor,
      [this, name = request->name()](const std::string& tenant) {
        return JobToProto(WithJob(*context_.jobs, tenant, name, [this](std::string_view key) {
          return context_.jobs->Cancel(key);
        }));
      });
}

grpc::ServerBidiReactor<v1::PruneRequest, v1::PruneResponse>* PruneServiceImpl::Prune(
    grpc::CallbackServerContext* rpc) {
  auto call = std::make_shared<PruneCall>(context_, rpc);
  call->Start();
  return call.get();
}

grpc::ServerUnaryReactor* PruneServiceImpl::GetServerInfo(grpc::CallbackServerContext* rpc,
                                                          const v1::GetServerInfoRequest* request,
                                                          v1::ServerInfo* response) {
  return RunUnary(context_, "PruneService/GetServerInfo", rpc, request, response, nullptr,
                  [this](const std::string& /*tenant*/) -> absl::StatusOr<v1::ServerInfo> {
                    return ServerInfoOf(context_);
                  });
}

}  // namespace sparsefw::server
