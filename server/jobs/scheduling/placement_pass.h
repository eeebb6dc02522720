// One pass over the queue that decides which jobs may start now.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_PLACEMENT_PASS_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_PLACEMENT_PASS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "server/jobs/devices.h"
#include "server/jobs/scheduling/device_pool.h"

namespace sparsefw::server {

// The things that waiting jobs may claim: a device by its name, or the memory of the host.
inline constexpr std::string_view kHostMemory = "host";

// Prevents starvation: a job that has to wait claims what it waits for, so that
// later jobs cannot take it. A job that waits for a device claims its devices;
// one that waits for host memory, or to be alone, claims everything. Jobs for the CPU wait for a
// worker independently of jobs for devices.
class PlacementPass {
 public:
  struct Host {
    int64_t free_bytes = 0;
    bool idle = true;  // nothing is reserved: then a job fits, whatever it needs
    bool free_worker = true;
    bool nothing_runs = true;
  };
  // `pool` must outlive the pass and not change during it. Things in `lapsed` cannot be claimed:
  // see ClaimTimes.
  PlacementPass(const DevicePool& pool, const Host& host,
                std::set<std::string, std::less<>> lapsed = {})
      : pool_(pool), host_(host), lapsed_(std::move(lapsed)) {}

  // Keeps the devices for a job that comes before the whole queue.
  void Claim(const DeviceNeed& need);
  // Where the next job of the queue runs: a device, or "" for the CPU; nothing: it waits.
  std::optional<std::string> Place(const JobNeed& need);
  // No later job can start.
  bool Full() const;
  // The claims that alone have kept a job of this pass from starting.
  const std::set<std::string>& held_back() const { return held_back_; }

 private:
  bool Fits(const JobNeed& need) const {
    if (need.alone) return host_.nothing_runs;
    return host_.idle || need.working_bytes <= host_.free_bytes;
  }
  std::optional<std::string> Choose(const JobNeed& need) const;

  const DevicePool& pool_;
  const Host host_;
  const std::set<std::string, std::less<>> lapsed_;
  std::set<std::string> claimed_;
  std::set<std::string> held_back_;
  bool memory_claimed_ = false;
};

// Times since which claims hold back jobs that could run. A claim that has done so for `limit`
// lapses: it is ignored for as long again, then honoured anew. So a job that fits waits no longer
// than `limit` for one that does not, and one that does not fit gets its turn as long as jobs are
// shorter than `limit`. Not thread-safe.
class ClaimTimes {
 public:
  explicit ClaimTimes(absl::Duration limit) : limit_(limit) {}
  std::set<std::string, std::less<>> Lapsed(absl::Time now) const;
  // Called after a pass. `complete`: the pass has started no job, so that claims which it has not
  // seen hold a job back hold none.
  void Update(const std::set<std::string>& held_back, bool complete, absl::Time now);
  // When the next one lapses; InfiniteFuture: none.
  absl::Time next() const;

 private:
  const absl::Duration limit_;
  std::map<std::string, absl::Time, std::less<>> since_;
  absl::Time updated_ = absl::InfinitePast();
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_PLACEMENT_PASS_H_
