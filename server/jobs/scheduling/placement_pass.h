// One pass over the queue that decides which jobs may start now.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_PLACEMENT_PASS_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_PLACEMENT_PASS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "server/jobs/devices.h"
#include "server/jobs/scheduling/device_pool.h"

namespace sparsefw::server {

// Prevents starvation: a job that has to wait claims what it waits for, so that
// later jobs cannot take it. A job that waits for a device claims its devices;
// one that waits for host memory claims everything. Jobs for the CPU wait for a
// worker independently of jobs for devices.
class PlacementPass {
 public:
  struct Host {
    int64_t free_bytes = 0;
    bool idle = true;  // nothing is reserved: then a job fits, whatever it needs
    bool free_worker = true;
  };
  // `pool` must outlive the pass and not change during it.
  PlacementPass(const DevicePool& pool, const Host& host) : pool_(pool), host_(host) {}

  // Keeps the devices for a job that comes before the whole queue.
  void Claim(const DeviceNeed& need) { claimed_.insert(need.devices.begin(), need.devices.end()); }
  // Where the next job of the queue runs: a device, or "" for the CPU; nothing: it waits.
  std::optional<std::string> Place(const JobNeed& need);
  // No later job can start.
  bool Full() const;

 private:
  const DevicePool& pool_;
  const Host host_;
  std::set<std::string> claimed_;
  bool memory_claimed_ = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_PLACEMENT_PASS_H_
