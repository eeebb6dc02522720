// The devices that jobs run on beside the CPU: which have room, which are lost.
#ifndef SPARSEFW_SERVER_JOBS_DEVICE_POOL_H_
#define SPARSEFW_SERVER_JOBS_DEVICE_POOL_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sparsefw::server {

struct PoolDevice {
  std::string name;          // "cuda:0"
  int64_t memory_bytes = 0;  // that jobs may reserve together
  int streams = 1;           // jobs at a time, >= 1
};

// What a job needs of a device.
struct DeviceNeed {
  std::vector<std::string> devices;  // of the pool: those that may run it; empty: the CPU does
  int64_t bytes = 0;
};

struct DeviceUsage {
  PoolDevice device;
  int64_t reserved_bytes = 0;
  int jobs = 0;
  bool lost = false;  // until the process ends
};

// Plain bookkeeping: no threads, no clock, no lock of its own. What is reserved
// never exceeds a device's memory or streams.
class DevicePool {
 public:
  explicit DevicePool(const std::vector<PoolDevice>& devices);

  // Whether a device that is not lost could run it, were it idle.
  // Errors: ResourceExhausted   DEVICE_MEMORY, with what is needed and what there is
  //         FailedPrecondition  DEVICE_UNAVAILABLE: all that may run it are lost
  absl::Status CheckPossible(const DeviceNeed& need) const;

  // Of the devices that may run it, are not lost, not in `excluded`, and have a
  // stream and the bytes free: the one with the most bytes unreserved, the first
  // of equal ones. Nothing: none now.
  std::optional<std::string> Choose(const DeviceNeed& need,
                                    const std::set<std::string>& excluded = {}) const;
  // What Choose said; until Release.
  void Reserve(const std::string& device, int64_t bytes);
  void Release(const std::string& device, int64_t bytes);
  // False when it was lost already.
  bool MarkLost(const std::string& device);

  const std::vector<DeviceUsage>& usage() const { return devices_; }

 private:
  DeviceUsage& Find(const std::string& name);

  std::vector<DeviceUsage> devices_;
};

// What a job needs to start.
struct JobNeed {
  int64_t working_bytes = 0;  // of the host
  DeviceNeed device;
};

// One look through waiting jobs, in order: which of them may start now.
//
// A job that has to wait keeps what it waits for from those behind it, so that
// none is overtaken for ever: a job that waits for a device, its devices; one
// that waits for memory of the host, everything. Jobs for the CPU wait for a
// worker beside those for devices.
class Placement {
 public:
  struct Host {
    int64_t free_bytes = 0;
    bool idle = true;  // nothing is reserved: then a job fits, whatever it needs
    bool free_worker = true;
  };
  // `pool` must outlive it and not change meanwhile.
  Placement(const DevicePool& pool, const Host& host) : pool_(pool), host_(host) {}

  // For a job that comes before the whole queue: its devices are kept for it.
  void Claim(const DeviceNeed& need) { claimed_.insert(need.devices.begin(), need.devices.end()); }
  // Where the next job of the queue runs: a device, or "" on the CPU; nothing: it waits.
  std::optional<std::string> Place(const JobNeed& need);
  // No job that comes later can start.
  bool Full() const;

 private:
  const DevicePool& pool_;
  const Host host_;
  std::set<std::string> claimed_;
  bool memory_claimed_ = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_DEVICE_POOL_H_
