#include "server/rpc/jobs/server_info.h"

#include <utility>

#include "server/rpc/convert/convert.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

void SetUsage(const DeviceUsage& usage, v1::Device* proto) {
  proto->set_job_memory_bytes(usage.device.memory_bytes);
  proto->set_job_memory_used_bytes(usage.reserved_bytes);
  proto->set_streams(usage.device.streams);
  proto->set_running_jobs(usage.jobs);
  proto->set_lost(usage.lost);
}

}  // namespace

v1::ServerInfo ServerInfoOf(const RpcContext& context) {
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

}  // namespace sparsefw::server
