#include "server/app/observe/rpc_log.h"

#include <string>
#include <string_view>
#include <vector>

#include "server/metrics/labels.h"

namespace sparsefw::server {
namespace {

// The key of a name, so that one search for job=<name> finds calls and job events.
std::string_view KeyOf(std::string_view resource) {
  if (resource.starts_with("jobs/")) return "job";
  if (resource.starts_with("tensors/")) return "tensor";
  if (resource.starts_with("uploads/")) return "upload";
  return "name";  // that no resource can have
}

}  // namespace

void LogRpc(const RpcRecord& record, Logger* logger) {
  std::vector<Logger::Field> fields = {{"method", std::string(record.method)},
                                       {"code", CodeName(record.status.code())},
                                       {"ms", absl::ToDoubleMilliseconds(record.duration)},
                                       {"peer", record.peer}};
  const auto add = [&fields](std::string_view key, std::string_view value) {
    if (!value.empty()) fields.push_back({key, std::string(value)});
  };
  add("tenant", record.tenant);
  add(KeyOf(record.subject.resource), record.subject.resource);
  add("request_id", record.subject.request_id);
  add("traceparent", record.traceparent);
  const absl::string_view message = record.status.message();
  add("message", {message.data(), message.size()});
  const bool quiet = record.status.ok() || absl::IsCancelled(record.status);
  logger->Log(quiet ? LogLevel::kDebug : LogLevel::kInfo, "rpc", fields);
}

}  // namespace sparsefw::server
