// Devices that jobs run on beside the CPU: what there is, what a job needs, what
// is in use.
#ifndef SPARSEFW_SERVER_JOBS_DEVICES_H_
#define SPARSEFW_SERVER_JOBS_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace sparsefw::server {

struct PoolDevice {
  std::string name;          // "cuda:0"
  int64_t memory_bytes = 0;  // that jobs may reserve together
  int streams = 1;           // jobs at a time, >= 1
};

// Requirements of a job on a device; bytes are upper estimates.
struct DeviceNeed {
  std::vector<std::string> devices;  // of the pool: those that may run it; empty: the CPU
  int64_t bytes = 0;                 // without the Gram matrix
  // A Gram matrix that all jobs with the same key share on a device.
  std::string gram = {};   // empty: none
  int64_t gram_bytes = 0;  // needed once per device

  int64_t total_bytes() const { return bytes + gram_bytes; }
};

struct JobNeed {
  int64_t working_bytes = 0;  // host memory on top of the tensors, an upper estimate
  DeviceNeed device;
  bool alone = false;  // nothing else may run meanwhile
};

struct DeviceUsage {
  PoolDevice device;
  int64_t reserved_bytes = 0;  // by running jobs, including the Grams they use
  int jobs = 0;
  bool lost = false;         // until the process ends
  int64_t gram_bytes = 0;    // of all resident Grams, in use or not
  int64_t gram_uploads = 0;  // since the start
  int64_t gram_reuses = 0;   // by jobs whose Gram was resident
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_DEVICES_H_
