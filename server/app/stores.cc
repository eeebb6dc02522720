#include "server/app/stores.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "server/storage/sqlite_stores.h"
#include "server/storage/state_folder.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

void LogIncident(Logger& logger, const StoreIncident& incident) {
  std::vector<Logger::Field> fields = {{"kind", std::string(incident.kind)},
                                       {"name", incident.name}};
  if (!incident.tenant.empty()) fields.push_back({"tenant", incident.tenant});
  fields.push_back({"cause", std::string(incident.cause.message())});
  logger.Log(LogLevel::kWarning, "store_incident", fields);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stores>> Stores::Open(const ServerConfig& config,
                                                     const Backend& backend,
                                                     int64_t device_sum_bytes,
                                                     LimitsOfTenant limits_of, Logger* logger) {
  std::unique_ptr<Stores> stores(new Stores(config.tensors.disk_budget_bytes, logger));
  SPARSEFW_RETURN_IF_ERROR(stores->OpenDatabase(config));
  SPARSEFW_RETURN_IF_ERROR(
      stores->OpenTensors(config, backend, device_sum_bytes, std::move(limits_of)));
  SPARSEFW_RETURN_IF_ERROR(stores->OpenCheckpoints(config));
  return stores;
}

absl::Status Stores::OpenDatabase(const ServerConfig& config) {
  if (config.store == "memory") {
    SPARSEFW_ASSIGN_OR_RETURN(jobs_, NewMemoryJobStore());
    return absl::OkStatus();
  }
  SPARSEFW_ASSIGN_OR_RETURN(state_folder_, HoldStateFolder(config.state_dir));
  SPARSEFW_ASSIGN_OR_RETURN(database_, Database::Open(config.state_dir + "/sparsefw.db"));
  tensor_catalog_ = NewSqliteTensorCatalog(database_.get());
  SPARSEFW_ASSIGN_OR_RETURN(
      jobs_, NewSqliteJobStore(database_.get(), [this](const StoreIncident& incident) {
        LogIncident(logger_, incident);
      }));
  return absl::OkStatus();
}

absl::Status Stores::OpenTensors(const ServerConfig& config, const Backend& backend,
                                 int64_t device_sum_bytes, LimitsOfTenant limits_of) {
  TensorStoreOptions options = config.tensors;
  options.catalog = tensor_catalog_.get();
  options.disk_used_beside = [this] { return DiskUsedByJobs(); };
  if (options.tensor_ttl <= absl::ZeroDuration()) options.tensor_ttl = absl::InfiniteDuration();
  options.on_incident = [this](const StoreIncident& incident) { LogIncident(logger_, incident); };
  options.many_tenants = !config.tokens.empty() || !config.tls_client_ca.empty();
  options.limits_of = std::move(limits_of);
  options.gram_backend = &backend;
  options.device_sum_bytes = device_sum_bytes;
  SPARSEFW_ASSIGN_OR_RETURN(tensors_, TensorStore::Open(std::move(options)));
  LogTensors(config);
  return absl::OkStatus();
}

// Bytes that accepted jobs were promised count before they are written.
int64_t Stores::DiskUsedByJobs() const {
  if (database_ == nullptr) return 0;
  const absl::StatusOr<JobStoreUsage> usage = jobs_->Usage();
  return std::max(database_->FileBytes(), usage.ok() ? usage->bytes : 0);
}

std::function<int64_t()> Stores::DiskRoomOfJobs() {
  if (database_ == nullptr || disk_budget_bytes_ == 0) return {};
  return [this] { return disk_budget_bytes_ - tensors_->usage().disk_used_bytes; };
}

void Stores::CompactDatabase() {
  if (database_ == nullptr) return;
  const absl::Status done = database_->GiveBackPages();
  if (done.ok()) return;
  logger_.Log(LogLevel::kWarning, "database_not_compacted", {{"error", done.ToString()}});
}

absl::Status Stores::OpenCheckpoints(const ServerConfig& config) {
  if (database_ == nullptr) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(
      checkpoints_,
      CheckpointFolder::Open(config.state_dir + "/checkpoints", config.checkpoint_period,
                             [this](const std::string& job, const absl::Status& error) {
                               logger_.Log(LogLevel::kWarning, "checkpoint_failed",
                                           {{"job", job}, {"error", error.ToString()}});
                             }));
  return absl::OkStatus();
}

absl::Status Stores::SweepCheckpoints() {
  if (checkpoints_ == nullptr) return absl::OkStatus();
  constexpr int kPage = 1000;
  JobFilter unfinished;
  unfinished.states = {JobState::kQueued, JobState::kRunning};
  std::set<std::string> active;
  std::string token;
  do {
    SPARSEFW_ASSIGN_OR_RETURN(const JobStore::Page page, jobs_->List(unfinished, kPage, token));
    for (const Job& job : page.jobs) active.insert(job.name);
    token = page.next_page_token;
  } while (!token.empty());
  checkpoints_->RemoveAllBut(active);
  return absl::OkStatus();
}

void Stores::LogTensors(const ServerConfig& config) {
  const TensorStoreUsage usage = tensors_->usage();
  logger_.Log(LogLevel::kInfo, "tensors",
              {{"store", config.store},
               {"tensors", usage.tensors},
               {"uploads", usage.uploads},
               {"bytes", usage.used_bytes},
               {"to_check", usage.unchecked},
               {"device_sum_bytes", usage.device_sum_budget_bytes}});
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(config.tensors.spool_dir, error);
  // The bytes in use lie on the disk already.
  const int64_t needed = config.tensors.budget_bytes - usage.used_bytes;
  if (error || needed <= 0 || space.available >= static_cast<uintmax_t>(needed)) return;
  logger_.Log(LogLevel::kWarning, "the disk is smaller than --host-memory",
              {{"spool", config.tensors.spool_dir},
               {"free_bytes", static_cast<int64_t>(space.available)},
               {"needed_bytes", needed}});
}

}  // namespace sparsefw::server
