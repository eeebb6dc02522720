// The devices that jobs run on beside the CPU: which have room, which are lost.
#ifndef SPARSEFW_SERVER_JOBS_DEVICE_POOL_H_
#define SPARSEFW_SERVER_JOBS_DEVICE_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/jobs/resident_grams.h"
#include "server/jobs/shared_gram.h"

namespace sparsefw::server {

struct PoolDevice {
  std::string name;          // "cuda:0"
  int64_t memory_bytes = 0;  // that jobs may reserve together
  int streams = 1;           // jobs at a time, >= 1
};

// What a job needs of a device.
struct DeviceNeed {
  std::vector<std::string> devices;  // of the pool: those that may run it; empty: the CPU does
  int64_t bytes = 0;                 // of its own
  // A Gram matrix that all jobs with the same name for it share on a device.
  std::string gram = {};   // empty: none
  int64_t gram_bytes = 0;  // which it needs once

  int64_t total_bytes() const { return bytes + gram_bytes; }
};

struct DeviceUsage {
  PoolDevice device;
  int64_t reserved_bytes = 0;  // by running jobs, with the Grams that they use
  int jobs = 0;
  bool lost = false;         // until the process ends
  int64_t gram_bytes = 0;    // of all Grams that are there, in use or not
  int64_t gram_uploads = 0;  // since the start
  int64_t gram_reuses = 0;   // by jobs that found theirs there
};

// A Gram that is off the books of its device, but for its bytes, which nobody can
// have until Freed is called: after `gram` was let go of, without locks held.
struct EvictedGram {
  std::string device;
  int64_t bytes = 0;
  std::shared_ptr<SharedGram> gram;
};
using EvictedGrams = std::vector<EvictedGram>;

// Plain bookkeeping: no threads, no clock, no lock of its own. What is reserved
// never exceeds a device's memory or streams.
//
// Grams stay on a device between jobs as long as a job that waits or runs names
// them (Name, Unname) and nobody needs their room: those that no running job
// uses count as free, and Reserve makes them go.
class DevicePool {
 public:
  explicit DevicePool(const std::vector<PoolDevice>& devices);

  // Whether a device that is not lost could run it, were it idle.
  // Errors: ResourceExhausted   DEVICE_MEMORY, with what is needed and what there is
  //         FailedPrecondition  DEVICE_UNAVAILABLE: all that may run it are lost
  absl::Status CheckPossible(const DeviceNeed& need) const;

  // Of the devices that may run it, are not lost, not in `excluded`, and have a
  // stream and the bytes free: one that holds its Gram before others, then the one
  // with the most bytes unreserved, the first of equal ones. Nothing: none now.
  std::optional<std::string> Choose(const DeviceNeed& need,
                                    const std::set<std::string>& excluded = {}) const;

  // Of every job while it waits or runs. The last that named a Gram takes it along.
  // Here and below: what goes is appended to `evicted`.
  void Ref(const DeviceNeed& need);
  void Unref(const DeviceNeed& need, EvictedGrams* evicted);

  // What Choose said, of a job that is named; until Release. Its Gram there; null
  // where it has none. What leaves is to be freed before the job allocates.
  std::shared_ptr<SharedGram> Reserve(const std::string& device, const DeviceNeed& need,
                                      EvictedGrams* evicted);
  void Release(const std::string& device, const DeviceNeed& need, EvictedGrams* evicted);
  void ReleaseBytes(const EvictedGram& left);
  // False when it was lost already. The Grams that nobody uses there leave.
  bool MarkLost(const std::string& device, EvictedGrams* evicted);

  // Whether a device outside `excluded` that is not lost has a free stream.
  bool HasStream(const std::set<std::string>& excluded) const;
  std::vector<DeviceUsage> usage() const;

 private:
  struct Device {
    DeviceUsage usage;  // without its Grams
    ResidentGrams grams;
    int64_t evicted_bytes = 0;
    std::shared_ptr<GramCacheStats> stats;

    bool HasRoomFor(const DeviceNeed& need) const;
    int64_t FreeBytes() const;
    // What it adds to the reserved bytes.
    int64_t BytesFor(const DeviceNeed& need) const;
  };

  Device& Find(const std::string& name);
  static void Evict(Device& device, std::vector<ResidentGrams::Evicted> gone,
                    EvictedGrams* evicted);

  std::vector<Device> devices_;
  std::map<std::string, int> refs_;  // Grams, and by how many jobs
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
