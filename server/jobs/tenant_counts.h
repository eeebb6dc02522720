// How many tenants have jobs, for metrics: numbers, never names.
#ifndef SPARSEFW_SERVER_JOBS_TENANT_COUNTS_H_
#define SPARSEFW_SERVER_JOBS_TENANT_COUNTS_H_

#include <cstdint>

namespace sparsefw::server {

struct TenantCounts {
  int64_t waiting = 0;  // with queued jobs
  int64_t running = 0;  // with running ones
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_TENANT_COUNTS_H_
