#include "server/app/server.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "server/app/observe/facts.h"
#include "server/failpoint/failpoint.h"
#include "server/net/descriptor.h"
#include "server/status/status_page.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

// The time that connections get to end.
constexpr absl::Duration kShutdown = absl::Seconds(2);
// How often files of certificates, tokens and tenants are looked at, and calls under
// way compared with them. A change takes effect within three of it.
constexpr std::chrono::seconds kAccessPeriod(1);

// How often calls are looked at whose clients leave something undone.
constexpr std::chrono::seconds kTickPeriod(1);

// The rest of a long queue is a number.
constexpr size_t kQueueShown = 20;

}  // namespace

Server::~Server() {
  Drain(absl::ZeroDuration(), absl::ZeroDuration());
  {
    MutexLock lock(health_mutex_);
    serving_ = nullptr;  // a job may lose its device until the last has ended
  }
  // Their tasks use the others and the listener.
  for (Timer* timer : {&timer_, &access_timer_, &garbage_timer_}) timer->Stop();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerConfig& config, Logger* logger) {
  std::unique_ptr<Server> server(new Server(config, logger));
  SPARSEFW_RETURN_IF_ERROR(server->Open());
  return server;
}

absl::Status Server::Open() {
  SPARSEFW_ASSIGN_OR_RETURN(access_, Access::Open(config_, &logger_));
  // Before anything is opened: a server that may not start leaves no trace.
  SPARSEFW_RETURN_IF_ERROR(
      Listener::CheckAddress(config_.listen, config_.tls_cert.empty(), config_.insecure));
  SPARSEFW_RETURN_IF_ERROR(
      MetricsEndpoint::CheckAddress(config_.metrics_listen, config_.insecure_metrics));
  SPARSEFW_ASSIGN_OR_RETURN(const DefaultDevice device, ChooseDefaultDevice(config_.device));
  const int64_t sum_bytes = SumMemory(device, config_.devices);
  SPARSEFW_ASSIGN_OR_RETURN(
      stores_, Stores::Open(config_, *device.backend, sum_bytes, limits_of_, &logger_));
  job_counts_ = std::make_unique<JobCounts>(&stores_->jobs(), &logger_);
  metrics_ =
      std::make_unique<Metrics>(BuildInfo{SPARSEFW_VERSION, __VERSION__, SPARSEFW_BUILD_TYPE},
                                DeviceInfos(device), absl::Now());
  connection_events_ = std::make_unique<ConnectionEvents>(metrics_.get(), &logger_);
  OpenJobs(device);
  SPARSEFW_RETURN_IF_ERROR(RecoverJobs());
  // A job that cannot be looked up keeps its results.
  stores_->tensors().ReleaseLeft([this](std::string_view job, std::string_view tenant) {
    return jobs_->Has(job, tenant).value_or(true);
  });
  FillContext(device);
  metrics_->SetGauges([this] { return ComputeGauges(); });
  gpu_monitor_ = StartGpuMonitor(device.usable, config_.gpu_metrics_period, &logger_);
  SPARSEFW_RETURN_IF_ERROR(OpenPorts());
  CheckHealth();
  StartPeriodicWork();
  LogMissingDevices(device, logger_);
  logger_.Log(LogLevel::kInfo, "serving",
              {{"address", address()},
               {"metrics", metrics_address()},
               {"device", device.device.name},
               {"description", device.device.description},
               {"reason", device.reason},
               {"workers", int64_t{config_.jobs.workers}},
               {"solve_memory_bytes", solve_memory_bytes_},
               {"store", config_.store},
               {"spool", config_.tensors.spool_dir}});
  return absl::OkStatus();
}

std::string Server::Status() {
  const StatusFacts facts = {.version = context_.facts.info.version(),
                             .default_device = context_.facts.info.default_device(),
                             .workers = config_.jobs.workers,
                             .start_time = context_.facts.start_time,
                             .not_ready = NotReady(),
                             .show_names = !access_->authenticator().active()};
  return StatusDocument(facts, ComputeGauges(), live_jobs_.Look(kQueueShown), refusals_.Latest(),
                        absl::Now());
}

absl::Status Server::OpenPorts() {
  SPARSEFW_ASSIGN_OR_RETURN(
      endpoint_, MetricsEndpoint::Start(config_.metrics_listen, config_.insecure_metrics,
                                        {.metrics = metrics_.get(),
                                         .not_ready = [this] { return NotReady(); },
                                         .pages = StatusPages([this] { return Status(); })},
                                        [this] { connection_events_->OnRefused(); }));
  SPARSEFW_ASSIGN_OR_RETURN(
      listener_, Listener::Start({.address = config_.listen,
                                  .credentials = access_->NewServerCredentials(),
                                  .insecure = config_.insecure,
                                  .memory_bytes = GrpcMemory(config_),
                                  .connections = &connections_,
                                  .refused = [this] { connection_events_->OnRefused(); }},
                                 context_));
  {
    MutexLock lock(health_mutex_);
    serving_ = listener_.get();
  }
  return absl::OkStatus();
}

void Server::OpenJobs(const DefaultDevice& device) {
  for (const Backend* backend : device.pool) {
    if (backend->has_device_memory()) default_devices_.insert(backend->Describe().name);
  }
  SolverRunnerOptions runner = RunnerOptions(config_, device);
  runner.checkpoints = stores_->checkpoints();
  runner_ = std::make_unique<SolverRunner>(&stores_->tensors(), runner);
  events_ = std::make_unique<JobEvents>(
      metrics_.get(), &logger_, &live_jobs_, [this] { CheckHealth(); },
      [checkpoints = stores_->checkpoints()](const Job& job) {
        if (checkpoints != nullptr) checkpoints->Remove(job.name);
      });
  JobManagerOptions options = ManagerOptions(config_, device);
  options.disk_room = stores_->DiskRoomOfJobs();
  options.limits_of = limits_of_;
  solve_memory_bytes_ = options.working_memory_bytes;
  for (const PoolDevice& one : options.devices) {
    logger_.Log(
        LogLevel::kInfo, "device",
        {{"device", one.name}, {"job_memory_bytes", one.memory_bytes}, {"streams", one.streams}});
  }
  jobs_ = std::make_unique<JobManager>(options, &stores_->jobs(), runner_.get(), events_.get());
}

absl::Status Server::RecoverJobs() {
  SPARSEFW_RETURN_IF_ERROR(stores_->SweepCheckpoints());
  SPARSEFW_ASSIGN_OR_RETURN(const RecoveredJobs recovered, jobs_->Recover());
  if (recovered.queued + recovered.failed + recovered.cancelled == 0) return absl::OkStatus();
  logger_.Log(recovered.failed > 0 ? LogLevel::kWarning : LogLevel::kInfo, "jobs_recovered",
              {{"queued", recovered.queued},
               {"interrupted", recovered.interrupted},
               {"cancelled", recovered.cancelled},
               {"failed", recovered.failed}});
  return absl::OkStatus();
}

bool Server::DevicesLost() const {
  for (const DeviceUsage& usage : jobs_->devices()) {
    if (!usage.lost && default_devices_.contains(usage.device.name)) return false;
  }
  return !default_devices_.empty();
}

void Server::CheckHealth() {
  if (!DevicesLost()) return;
  MutexLock lock(health_mutex_);
  if (serving_ != nullptr) serving_->StopServing();
}

void Server::FillContext(const DefaultDevice& device) {
  context_.authenticator = &access_->authenticator();
  context_.tensors = &stores_->tensors();
  context_.staging = &staging_;
  context_.jobs = jobs_.get();
  context_.metrics = metrics_.get();
  context_.registry = &registry_;
  context_.connections = &connections_;
  context_.fetches = &fetches_;
  context_.threads = std::make_unique<CallThreads>(config_.io_threads);
  context_.timer = &timer_;
  context_.log = [this](const RpcRecord& record) {
    refusals_.Ended(record.method, record.status, absl::Now());
    metrics_->RpcRefused(record.status);
    LogRpc(record, &logger_);
  };
  context_.facts = FactsOf(config_, device, [this] {
    return gpu_monitor_ == nullptr ? std::vector<GpuSample>() : gpu_monitor_->Latest();
  });
}

std::string Server::NotReady() const {
  if (registry_.draining()) return "draining";
  {
    MutexLock lock(health_mutex_);
    if (serving_ == nullptr) return "starting";
  }
  return DevicesLost() ? "every device of the default is lost" : "";
}

Gauges Server::ComputeGauges() {
  Gauges gauges;
  gauges.tensors = stores_->tensors().usage();
  job_counts_->SetGauges(*jobs_, gauges);
  gauges.database_bytes = stores_->database_bytes();
  // As the budget counts it: the file, or what accepted jobs were promised.
  const int64_t kept = gauges.jobs_kept.has_value() ? gauges.jobs_kept->bytes : 0;
  if (gauges.database_bytes > 0) {
    gauges.tensors.disk_used_bytes += std::max(gauges.database_bytes, kept);
  }
  gauges.job_budget_bytes = config_.jobs.max_job_bytes;
  gauges.staging_budget_bytes = staging_.limit();
  gauges.staging_used_bytes = staging_.used();
  gauges.solve_memory_budget_bytes = solve_memory_bytes_;
  gauges.watchers = context_.watchers.load();
  gauges.executors = context_.threads->gauges();
  gauges.connections = connections_.counts();
  gauges.draining = registry_.draining();
  gauges.open_descriptors = OpenDescriptors();
  gauges.max_descriptors = DescriptorLimit();
  gauges.tls_certificate_expiry = access_->CertificateExpiry();
  if (gpu_monitor_ != nullptr) gauges.gpus = gpu_monitor_->Latest();
  return gauges;
}

void Server::StartPeriodicWork() {
  garbage_timer_.Every(absl::ToChronoNanoseconds(config_.gc_interval),
                       [this] { CollectGarbage(); });
  // Expiry needs no file: it does not wait for a disk that hangs.
  timer_.Every(kAccessPeriod, [this] {
    if (access_->authenticator().active()) registry_.Recheck();
  });
  access_timer_.Every(kAccessPeriod, [this] { PollAccess(false); });
  timer_.Every(kTickPeriod, [this] {
    registry_.Tick();
    listener_->Tick();
    ReturnMemory();
  });
}

void Server::CollectGarbage() {
  // Nobody holds the inputs of jobs that a drain leaves to the next process.
  if (!registry_.draining()) {
    jobs_->CollectGarbage();
    stores_->tensors().CollectGarbage();
  }
  stores_->CompactDatabase();
  // A burst of calls leaves its peak in glibc's heap, which nothing else
  // returns to the system once TuneAllocator has raised its threshold.
  if (registry_.size() == 0 && jobs_->running() == 0) malloc_trim(0);
}

// The memory of closed connections is free, but glibc's heap keeps it.
void Server::ReturnMemory() {
  const int64_t closed = connections_.counts().closed;
  if (std::exchange(closed_connections_, closed) == closed) return;
  garbage_timer_.After(kTickPeriod / 2, [] { malloc_trim(0); });
}

void Server::PollAccess(bool all) {
  if (!access_->Poll(all)) return;
  registry_.Recheck();
  jobs_->OnLimitsChanged();
}

// Watches end once their last event is sent, then the calls that read the results
// begin, then those calls end.
void Server::AwaitFetches(absl::Duration grace) {
  const absl::Time end = SteadyNow() + grace;
  const auto left = [end] { return std::max(end - SteadyNow(), absl::ZeroDuration()); };
  registry_.WaitUntilEmpty(left());
  fetches_.WaitUntilFetched(end);
  registry_.WaitUntilEmpty(left());
}

void Server::Drain(absl::Duration grace, absl::Duration fetch_grace) {
  MutexLock lock(drain_mutex_);
  if (std::exchange(drained_, true) || listener_ == nullptr) return;
  logger_.Log(LogLevel::kInfo, "draining",
              {{"grace_s", absl::ToDoubleSeconds(grace)},
               {"running_jobs", jobs_->running()},
               {"calls", registry_.size()}});
  listener_->StopServing();
  jobs_->StopAccepting();
  if (stores_->checkpoints() != nullptr) stores_->checkpoints()->CheckpointSoon();
  registry_.BeginDrain();
  Failpoint("drain.begun");
  jobs_->Drain(grace);
  Failpoint("drain.jobs_stopped");
  AwaitFetches(fetch_grace);
  registry_.CloseAll();
  listener_->Shutdown(kShutdown);
  logger_.Log(LogLevel::kInfo, "drained");
}

}  // namespace sparsefw::server
