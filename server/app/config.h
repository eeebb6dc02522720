// The configuration of the server: flags, environment, file.
#ifndef SPARSEFW_SERVER_APP_CONFIG_H_
#define SPARSEFW_SERVER_APP_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/app/settings.h"
#include "server/jobs/job_manager.h"
#include "server/runner/devices.h"
#include "server/tensors/tensor_store.h"

namespace sparsefw::server {

// The server sets the options of tensors, jobs and devices that depend on other parts, whatever
// stands here: stores, devices, memory of solves, limits of tenants and callbacks.
struct ServerConfig {
  ServerConfig() {
    tensors.tensor_ttl = absl::ZeroDuration();
    jobs.max_job_bytes = int64_t{1} << 30;
    jobs.max_result_ttl = absl::Hours(24 * 365);
  }

  std::string listen = "127.0.0.1:50051";         // port 0: a free one
  std::string metrics_listen = "127.0.0.1:9464";  // port 0: a free one
  std::string tls_cert;                           // with tls_key; empty: plain text
  std::string tls_key;
  std::string tls_client_ca;           // empty: clients need no certificate
  std::string tokens;                  // file; empty: clients need no token
  std::string tenants;                 // file; empty: tenants have no limits of their own
  bool insecure = false;               // plain text on addresses other than loopback
  bool insecure_metrics = false;       // metrics on such addresses: they know no TLS
  int64_t max_connections = 0;         // to the gRPC port; 0: as file descriptors allow
  int64_t max_peer_connections = 512;  // of one address; 0: no limit
  int64_t connection_memory_bytes = int64_t{2} << 30;  // of all connections
  int64_t peer_memory_bytes = int64_t{256} << 20;      // of one address
  std::string state_dir;
  TensorStoreOptions tensors;  // spool_dir: <state_dir>/spool unless set; tensor_ttl 0: for ever
  JobManagerOptions jobs;
  PoolOptions devices;
  std::string store = "sqlite";  // sqlite: <state_dir>/sparsefw.db; memory
  std::string device = "auto";   // or as in --device
  int job_threads = 0;           // of a job on the CPU; 0: cores / workers
  int io_threads = 4;
  int64_t staging_memory_bytes = int64_t{512} << 20;
  int64_t solve_memory_bytes = 0;  // 0: 80 % of the machine's memory, or of the cgroup's
  absl::Duration checkpoint_period = absl::Minutes(1);
  absl::Duration drain_grace = absl::Seconds(30);
  absl::Duration fetch_grace = absl::Seconds(10);
  absl::Duration gc_interval = absl::Seconds(30);
  absl::Duration gpu_metrics_period = absl::Seconds(5);  // 0: GPUs are not measured
  std::string log_level = "info";                        // debug, info, warning, error
  std::string log_format = "text";                       // text, json
  std::vector<v1::Setting> settings;                     // all of this as it was given
};

struct Arguments {
  // Nothing: print `text` and leave with `exit_code` (0 --help, 2 bad usage).
  std::optional<ServerConfig> config;
  int exit_code = 0;
  std::string text;
};

// The value of a variable; nothing: it is not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

// Flag over environment (SPARSEFW_<FLAG>) over --config file. An unknown flag
// or key, and a value out of range, is bad usage. A variable that is set and
// empty counts as not set, unless it would name a file: that is refused.
Arguments ParseArguments(const std::vector<std::string>& arguments, const Environment& getenv);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_CONFIG_H_
