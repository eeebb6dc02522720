#include <algorithm>
#include <utility>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/rpc/jobs/announced_inputs.h"
#include "server/rpc/jobs/prune_call.h"
#include "server/rpc/jobs/watch_call.h"
#include "server/rpc/runtime/tenant_view.h"
#include "server/rpc/runtime/unary_call.h"
#include "server/rpc/services.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {
namespace {

using google::protobuf::Empty;

// While draining the manager refuses what is new, and still answers what repeats.
absl::StatusOr<v1::Job> CreateJob(RpcContext& context, const UnaryCaller& caller,
                                  const v1::CreateJobRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(request.owner()));
  SPARSEFW_ASSIGN_OR_RETURN(JobSpec parsed, FromProto(request.spec()));
  parsed.traceparent = caller.traceparent;
  SPARSEFW_ASSIGN_OR_RETURN(
      const Job job, WithInputs(*context.tensors, caller.tenant, parsed, [&](const JobSpec& spec) {
        return context.jobs->Submit(spec, request.request_id(), JobDigestOf("CreateJob", request),
                                    Owner{caller.tenant, request.owner()}, request.validate_only());
      }));
  return ToProto(job);
}

absl::StatusOr<v1::CheckJobOptionsResponse> CheckJobOptions(
    RpcContext& context, const UnaryCaller& caller, const v1::CheckJobOptionsRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const JobSpec parsed, FromProto(request.spec()));
  SPARSEFW_ASSIGN_OR_RETURN(const InputSpecs inputs, AnnouncedInputs(parsed, request));
  SPARSEFW_RETURN_IF_ERROR(WithInputs(
      *context.tensors, caller.tenant, parsed,
      [&](const JobSpec& spec) { return context.jobs->Check(spec, inputs, caller.tenant); }));
  return v1::CheckJobOptionsResponse();
}

// Labels and errors can make a job large: a page that would not fit a message
// is asked for again, smaller, so that its token is right.
absl::StatusOr<v1::ListJobsResponse> ListJobs(RpcContext& context, const UnaryCaller& caller,
                                              const v1::ListJobsRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(int page_size, PageSize(request.page_size()));
  SPARSEFW_ASSIGN_OR_RETURN(JobFilter filter, FilterFromProto(request));
  filter.tenant = caller.tenant;
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

void SetUsage(const DeviceUsage& usage, v1::Device* proto) {
  proto->set_job_memory_bytes(usage.device.memory_bytes);
  proto->set_job_memory_used_bytes(usage.reserved_bytes);
  proto->set_streams(usage.device.streams);
  proto->set_running_jobs(usage.jobs);
  proto->set_lost(usage.lost);
}

// Abilities and present load of this server.
absl::StatusOr<v1::ServerInfo> GetServerInfo(RpcContext& context, const UnaryCaller& /*caller*/,
                                             const v1::GetServerInfoRequest& /*request*/) {
  const ServerFacts& facts = context.facts;
  v1::ServerInfo info = facts.info;
  const std::vector<DeviceUsage> pool = context.jobs->devices();
  for (v1::Device& device : facts.devices()) {
    for (const DeviceUsage& usage : pool) {
      if (usage.device.name == device.name()) SetUsage(usage, &device);
    }
    *info.add_devices() = std::move(device);
  }
  for (const v1::Method method : {v1::METHOD_MAGNITUDE, v1::METHOD_WANDA, v1::METHOD_RIA,
                                  v1::METHOD_SPARSEGPT, v1::METHOD_SPARSEFW, v1::METHOD_ALPS}) {
    info.add_methods(method);
  }
  for (const char* pattern : {"unstructured", "per-row", "n:m"}) info.add_patterns(pattern);
  for (const v1::DataType dtype : {v1::DATA_TYPE_F32, v1::DATA_TYPE_F16, v1::DATA_TYPE_BF16})
    info.add_weight_dtypes(dtype);
  for (const v1::DataType dtype : {v1::DATA_TYPE_F32, v1::DATA_TYPE_F64})
    info.add_gram_dtypes(dtype);

  const TensorStoreUsage usage = context.tensors->usage();
  info.set_host_memory_bytes(usage.budget_bytes);
  info.set_host_memory_used_bytes(usage.used_bytes);
  info.set_max_message_bytes(kMaxChunkBytes);
  info.set_suggested_chunk_bytes(kSuggestedChunkBytes);
  info.set_queued_jobs(static_cast<int32_t>(context.jobs->queued()));
  info.set_running_jobs(static_cast<int32_t>(context.jobs->running()));
  info.set_draining(context.registry->draining());
  *info.mutable_uptime() = ToProto(SteadyNow() - facts.steady_start_time);
  return info;
}

}  // namespace

PruneServiceImpl::PruneServiceImpl(RpcContext& context) {
  CallThreads& threads = *context.threads;
  const auto with = [](auto&&... arguments) { return WithJob(arguments...); };
  AddUnary(context, "/sparsefw.v1.PruneService/CheckJobOptions", &threads.jobs, &CheckJobOptions);
  AddUnary(context, "/sparsefw.v1.PruneService/CreateJob", &threads.jobs, &CreateJob);
  AddNamed<v1::GetJobRequest, v1::Job>(context, "/sparsefw.v1.PruneService/GetJob", &threads.quick,
                                       context.jobs, with, &JobManager::Get);
  AddUnary(context, "/sparsefw.v1.PruneService/ListJobs", &threads.jobs, &ListJobs);
  // Deletes the files of its results too.
  AddNamed<v1::DeleteJobRequest, Empty>(context, "/sparsefw.v1.PruneService/DeleteJob",
                                        &threads.data, context.jobs, with, &JobManager::Delete);
  AddNamed<v1::CancelJobRequest, v1::Job>(context, "/sparsefw.v1.PruneService/CancelJob",
                                          &threads.quick, context.jobs, with, &JobManager::Cancel);
  AddUnary(context, "/sparsefw.v1.PruneService/GetServerInfo", nullptr, &GetServerInfo);
  AddBidi<grpc::ByteBuffer, v1::JobEvent>(
      "/sparsefw.v1.PruneService/WatchJob",
      [&context](grpc::CallbackServerContext* rpc) { return StartCall<WatchCall>(context, rpc); });
  AddBidi<v1::PruneRequest, grpc::ByteBuffer>(
      "/sparsefw.v1.PruneService/Prune",
      [&context](grpc::CallbackServerContext* rpc) { return StartCall<PruneCall>(context, rpc); });
}

}  // namespace sparsefw::server
