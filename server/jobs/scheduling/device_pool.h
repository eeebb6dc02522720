// Bookkeeping of the devices: which have room, which are lost, which Grams are resident.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_DEVICE_POOL_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_DEVICE_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/jobs/devices.h"
#include "server/jobs/scheduling/shared_gram.h"

namespace sparsefw::server {

// Eviction has two phases: the pool unlinks the entry, and ReleaseBytes returns its
// bytes once `gram` has been reset. That waits for the device, so it happens
// without locks held.
struct EvictedGram {
  std::string device;
  int64_t bytes = 0;
  std::shared_ptr<SharedGram> gram;
};
using EvictedGrams = std::vector<EvictedGram>;

// Without threads, clock or lock. Reservations never exceed a device's memory or
// streams.
//
// A Gram stays on a device between jobs as long as a queued or running job
// references it (Ref, Unref). A Gram referenced only by queued jobs is evictable:
// Reserve evicts it when a job needs the memory, and it is uploaded again on demand.
class DevicePool {
 public:
  explicit DevicePool(const std::vector<PoolDevice>& devices);

  // Whether some device that is not lost could run it, were it idle.
  // Errors: ResourceExhausted   DEVICE_MEMORY, with what is needed and what there is
  //         FailedPrecondition  DEVICE_UNAVAILABLE: all that may run it are lost
  absl::Status CheckPossible(const DeviceNeed& need) const;

  // The device to run it on now, if any: allowed by `need`, not lost, not in
  // `excluded`, with a free stream and enough free bytes. Prefers one where its
  // Gram is resident, then the one with the most unreserved bytes, then the first.
  std::optional<std::string> Choose(const DeviceNeed& need,
                                    const std::set<std::string>& excluded = {}) const;

  // A reference to the job's Gram, from the time it is queued to its end. The last
  // Unref evicts the Gram. Here and below evicted Grams are appended to `evicted`.
  void Ref(const DeviceNeed& need);
  void Unref(const DeviceNeed& need, EvictedGrams* evicted);

  // Reserves what Choose found, until Release. Returns the job's Gram, null where
  // it has none. Evicted Grams must be freed before the job allocates.
  std::shared_ptr<SharedGram> Reserve(const std::string& device, const DeviceNeed& need,
                                      EvictedGrams* evicted);
  void Release(const std::string& device, const DeviceNeed& need, EvictedGrams* evicted);
  void ReleaseBytes(const EvictedGram& freed);
  // Evicts the Grams there that are not in use. False when it was lost already.
  bool MarkLost(const std::string& device, EvictedGrams* evicted);

  // Whether a device outside `excluded` that is not lost has a free stream.
  bool HasStream(const std::set<std::string>& excluded) const;
  std::vector<DeviceUsage> usage() const;

 private:
  // In use while a job that runs on the device uses it, otherwise idle.
  struct ResidentGram {
    int64_t bytes = 0;
    int users = 0;
    int64_t idle_since = 0;  // grows with every Gram that becomes idle
    std::shared_ptr<SharedGram> gram;
  };
  struct Device {
    DeviceUsage usage;  // its gram_ fields are not used
    std::map<std::string, ResidentGram> grams;
    int64_t idle_count = 0;     // Grams that have become idle so far
    int64_t evicted_bytes = 0;  // of evicted Grams that are not freed yet
    std::shared_ptr<GramCacheStats> stats;

    bool HasRoomFor(const DeviceNeed& need) const;
    int64_t FreeBytes() const;
    // Bytes that reserving it adds to reserved_bytes.
    int64_t BytesFor(const DeviceNeed& need) const;
    int64_t IdleBytes() const;
    // Nothing when it is in use or not resident.
    void Evict(const std::string& gram, EvictedGrams* evicted);
    // Evicts idle Grams, the longest idle first, until they have `bytes` together.
    void EvictIdle(int64_t bytes, EvictedGrams* evicted);
  };

  Device& Find(const std::string& name);

  std::vector<Device> devices_;
  std::map<std::string, int> refs_;  // jobs that reference a Gram, by its key
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_DEVICE_POOL_H_
