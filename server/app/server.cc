#include "server/app/server.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "server/app/access.h"
#include "server/app/listener.h"
#include "server/app/observe/events.h"
#include "server/app/observe/facts.h"
#include "server/app/observe/job_counts.h"
#include "server/app/resources.h"
#include "server/app/stores.h"
#include "server/failpoint/failpoint.h"
#include "server/metrics/metrics.h"
#include "server/metrics/metrics_endpoint.h"
#include "server/net/descriptor_limit.h"
#include "server/status/live_jobs.h"
#include "server/status/refusals.h"
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

class ServerImpl final : public Server {
 public:
  ServerImpl(const ServerConfig& config, Logger* logger) : config_(config), logger_(*logger) {}
  ~ServerImpl() override {
    Drain(absl::ZeroDuration(), absl::ZeroDuration());
    {
      MutexLock lock(health_mutex_);
      serving_ = nullptr;  // a job may lose its device until the last has ended
    }
    // Their tasks use the others and the listener.
    for (Timer* timer : {&timer_, &access_timer_, &garbage_timer_}) timer->Stop();
  }

  absl::Status Open();

  const std::string& address() const override { return address_; }
  const std::string& metrics_address() const override { return metrics_address_; }
  const std::string& device() const override { return context_.facts.info.default_device(); }
  void Drain(absl::Duration grace) override { Drain(grace, config_.fetch_grace); }
  void Reload() override { PollAccess(true); }
  std::shared_ptr<grpc::Channel> InProcessChannel() override {
    return listener_->server().InProcessChannel(grpc::ChannelArguments());
  }
  TensorStore& tensors() override { return stores_->tensors(); }
  JobManager& jobs() override { return *jobs_; }
  FairSemaphore& staging() override { return staging_; }
  ReactorRegistry& calls() override { return registry_; }

 private:
  absl::Status CheckAddresses() const;
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
  std::string address_;
  std::string metrics_address_;
  int64_t solve_memory_bytes_ = 0;

  Mutex drain_mutex_;
  bool drained_ ABSL_GUARDED_BY(drain_mutex_) = false;
};

absl::Status ServerImpl::Open() {
  SPARSEFW_ASSIGN_OR_RETURN(access_, Access::Open(config_, &logger_));
  SPARSEFW_RETURN_IF_ERROR(CheckAddresses());
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
  address_ = listener_->address();
  StartPeriodicWork();
  LogMissingDevices(device, logger_);
  logger_.Log(LogLevel::kInfo, "serving",
              {{"address", address_},
               {"metrics", metrics_address_},
               {"device", device.device.name},
               {"description", device.device.description},
               {"reason", device.reason},
               {"workers", int64_t{config_.jobs.workers}},
               {"solve_memory_bytes", solve_memory_bytes_},
               {"store", config_.store},
               {"spool", config_.tensors.spool_dir}});
  return absl::OkStatus();
}

// Before anything is opened: a server that may not start leaves no trace.
absl::Status ServerImpl::CheckAddresses() const {
  SPARSEFW_RETURN_IF_ERROR(
      Listener::CheckAddress(config_.listen, config_.tls_cert.empty(), config_.insecure));
  return MetricsEndpoint::CheckAddress(config_.metrics_listen, config_.insecure_metrics);
}

std::string ServerImpl::Status() {
  const StatusFacts facts = {.version = context_.facts.info.version(),
                             .default_device = context_.facts.info.default_device(),
                             .workers = config_.jobs.workers,
                             .start_time = context_.facts.start_time,
                             .not_ready = NotReady(),
                             .show_names = !access_->authenticator().active()};
  return StatusDocument(facts, ComputeGauges(), live_jobs_.Look(kQueueShown), refusals_.Latest(),
                        absl::Now());
}

absl::Status ServerImpl::OpenPorts() {
  SPARSEFW_ASSIGN_OR_RETURN(
      endpoint_, MetricsEndpoint::Start(config_.metrics_listen, config_.insecure_metrics,
                                        {.metrics = metrics_.get(),
                                         .not_ready = [this] { return NotReady(); },
                                         .pages = StatusPages([this] { return Status(); })},
                                        [this] { connection_events_->OnRefused(); }));
  metrics_address_ = endpoint_->address();
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

void ServerImpl::OpenJobs(const DefaultDevice& device) {
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

absl::Status ServerImpl::RecoverJobs() {
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

bool ServerImpl::DevicesLost() const {
  for (const DeviceUsage& usage : jobs_->devices()) {
    if (!usage.lost && default_devices_.contains(usage.device.name)) return false;
  }
  return !default_devices_.empty();
}

void ServerImpl::CheckHealth() {
  if (!DevicesLost()) return;
  MutexLock lock(health_mutex_);
  if (serving_ != nullptr) serving_->StopServing();
}

void ServerImpl::FillContext(const DefaultDevice& device) {
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

std::string ServerImpl::NotReady() const {
  if (registry_.draining()) return "draining";
  {
    MutexLock lock(health_mutex_);
    if (serving_ == nullptr) return "starting";
  }
  return DevicesLost() ? "every device of the default is lost" : "";
}

Gauges ServerImpl::ComputeGauges() {
  Gauges gauges;
  gauges.tensors = stores_->tensors().usage();
  job_counts_->SetGauges(*jobs_, gauges);
  gauges.database_bytes = stores_->database_bytes();
  gauges.tensors.disk_used_bytes += gauges.database_bytes;
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

void ServerImpl::StartPeriodicWork() {
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

void ServerImpl::CollectGarbage() {
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
void ServerImpl::ReturnMemory() {
  const int64_t closed = connections_.counts().closed;
  if (std::exchange(closed_connections_, closed) == closed) return;
  garbage_timer_.After(kTickPeriod / 2, [] { malloc_trim(0); });
}

void ServerImpl::PollAccess(bool all) {
  if (!access_->Poll(all)) return;
  registry_.Recheck();
  jobs_->OnLimitsChanged();
}

// Watches end once their last event is sent, then the calls that read the results
// begin, then those calls end.
void ServerImpl::AwaitFetches(absl::Duration grace) {
  const absl::Time end = SteadyNow() + grace;
  const auto left = [end] { return std::max(end - SteadyNow(), absl::ZeroDuration()); };
  registry_.WaitUntilEmpty(left());
  fetches_.WaitUntilFetched(end);
  registry_.WaitUntilEmpty(left());
}

void ServerImpl::Drain(absl::Duration grace, absl::Duration fetch_grace) {
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

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerConfig& config, Logger* logger) {
  auto server = std::make_unique<ServerImpl>(config, logger);
  SPARSEFW_RETURN_IF_ERROR(server->Open());
  return server;
}

}  // namespace sparsefw::server
