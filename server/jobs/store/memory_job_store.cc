#include <algorithm>
#include <charconv>
#include <functional>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/jobs/job_store.h"
#include "server/jobs/kept_bytes.h"
#include "sparsefw/mutex.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Jobs that one page looks at: others wait meanwhile.
constexpr int kJobsOfPage = 2000;
constexpr char kRetryDelayMs[] = "1000";

// Jobs are numbered in order of insertion and numbers are never reused, so a page
// token, the last number listed, stays valid while jobs are added and deleted.
class MemoryJobStore final : public JobStore {
 public:
  bool durable() const override { return false; }

  absl::Status Insert(const Job& job, std::string_view request_id, std::string_view fingerprint,
                      const JobRoom& room) override {
    const int64_t bytes = KeptBytes(job);
    MutexLock lock(mutex_);
    if (numbers_.contains(job.name)) {
      return absl::AlreadyExistsError(absl::StrFormat("%s exists already", job.name));
    }
    const Request request{job.owner.tenant, std::string(request_id)};
    if (const auto taken = requests_.find(request); taken != requests_.end()) {
      return absl::AlreadyExistsError(
          absl::StrFormat("request_id \"%s\" belongs to %s", request_id, taken->second.job));
    }
    const auto used = bytes_.find(job.owner.tenant);
    SPARSEFW_RETURN_IF_ERROR(
        CheckJobRoom(room, job.owner.tenant, bytes,
                     {used == bytes_.end() ? 0 : used->second, all_bytes_, all_bytes_}));
    Count(job.owner.tenant, bytes);
    const int64_t number = ++last_number_;
    entries_.emplace(number, Entry{job, request});
    numbers_.emplace(job.name, number);
    if (IsTerminal(job.state)) expiring_.emplace(job.expire_time, number);
    if (!request_id.empty()) {
      requests_.emplace(request, RequestRecord{job.name, std::string(fingerprint)});
    }
    return absl::OkStatus();
  }

  absl::Status Update(const Job& job) override {
    MutexLock lock(mutex_);
    const auto number = numbers_.find(job.name);
    if (number == numbers_.end()) return JobNotFound(job.name);
    Job& stored = entries_.at(number->second).job;
    expiring_.erase({stored.expire_time, number->second});
    Count(job.owner.tenant, KeptBytes(job) - KeptBytes(stored));
    stored = job;
    if (IsTerminal(job.state)) expiring_.emplace(job.expire_time, number->second);
    return absl::OkStatus();
  }

  absl::Status UpdateProgress(std::string_view name, const JobProgress& progress) override {
    MutexLock lock(mutex_);
    const auto number = numbers_.find(name);
    if (number == numbers_.end()) return JobNotFound(name);
    Job& stored = entries_.at(number->second).job;
    stored.progress = progress.report;
    stored.revision = progress.revision;
    return absl::OkStatus();
  }

  absl::StatusOr<Job> Get(std::string_view name) const override {
    MutexLock lock(mutex_);
    const auto number = numbers_.find(name);
    if (number == numbers_.end()) return JobNotFound(name);
    return entries_.at(number->second).job;
  }

  absl::StatusOr<bool> Has(std::string_view name, std::string_view tenant) const override {
    MutexLock lock(mutex_);
    const auto number = numbers_.find(name);
    return number != numbers_.end() && entries_.at(number->second).job.owner.tenant == tenant;
  }

  absl::StatusOr<std::optional<RequestRecord>> FindRequest(
      std::string_view tenant, std::string_view request_id) const override {
    MutexLock lock(mutex_);
    const auto record = requests_.find({std::string(tenant), std::string(request_id)});
    if (record == requests_.end()) return std::nullopt;
    return record->second;
  }

  absl::StatusOr<Page> List(const JobFilter& filter, int page_size,
                            std::string_view page_token) const override {
    if (page_size < 1) {
      return WithReason(absl::InvalidArgumentError(
                            absl::StrFormat("page_size must be at least 1; got %d", page_size)),
                        "PAGE_SIZE_INVALID");
    }
    MutexLock lock(mutex_);
    auto entry = entries_.begin();
    if (!page_token.empty()) {
      const std::optional<int64_t> last = ParseToken(page_token);
      if (!last) {
        return WithReason(
            absl::InvalidArgumentError("page_token must be one that this server returned"),
            "PAGE_TOKEN_INVALID");
      }
      entry = entries_.upper_bound(*last);
    }
    Page page;
    int64_t last = 0;
    for (int seen = 0; entry != entries_.end(); ++entry, ++seen) {
      const bool matches = Matches(entry->second.job, filter);
      if (seen == kJobsOfPage || (matches && std::ssize(page.jobs) == page_size)) {
        page.next_page_token = absl::StrFormat("%s%x", token_prefix_, last);
        break;
      }
      if (matches) page.jobs.push_back(entry->second.job);
      last = entry->first;
    }
    return page;
  }

  absl::StatusOr<std::vector<Job>> ListExpired(absl::Time now, int limit) const override {
    MutexLock lock(mutex_);
    std::vector<Job> expired;
    for (const auto& [time, number] : expiring_) {
      if (time > now || expired.size() >= static_cast<size_t>(limit)) break;
      expired.push_back(entries_.at(number).job);
    }
    return expired;
  }

  absl::Status Delete(std::string_view name) override {
    MutexLock lock(mutex_);
    const auto number = numbers_.find(name);
    if (number == numbers_.end()) return JobNotFound(name);
    const auto entry = entries_.find(number->second);
    requests_.erase(entry->second.request);
    expiring_.erase({entry->second.job.expire_time, entry->first});
    Count(entry->second.job.owner.tenant, -KeptBytes(entry->second.job));
    entries_.erase(entry);
    numbers_.erase(number);
    return absl::OkStatus();
  }

  absl::StatusOr<std::map<JobState, int64_t>> CountByState() const override {
    MutexLock lock(mutex_);
    std::map<JobState, int64_t> counts;
    for (const auto& [number, entry] : entries_) ++counts[entry.job.state];
    return counts;
  }

  absl::StatusOr<JobStoreUsage> Usage() const override {
    MutexLock lock(mutex_);
    return JobStoreUsage{.bytes = all_bytes_};
  }

 private:
  using Request = std::pair<std::string, std::string>;  // tenant and request id
  struct Entry {
    Job job;
    Request request;
  };

  static bool Matches(const Job& job, const JobFilter& filter) {
    if (!filter.tenant.empty() && job.owner.tenant != filter.tenant) return false;
    if (!filter.states.empty() &&
        std::find(filter.states.begin(), filter.states.end(), job.state) == filter.states.end()) {
      return false;
    }
    return std::all_of(filter.labels.begin(), filter.labels.end(), [&job](const auto& label) {
      const auto own = job.spec.labels.find(label.first);
      return own != job.spec.labels.end() && own->second == label.second;
    });
  }

  std::optional<int64_t> ParseToken(std::string_view token) const {
    if (!token.starts_with(token_prefix_)) return std::nullopt;
    token.remove_prefix(token_prefix_.size());
    int64_t number = 0;
    const auto [end, error] =
        std::from_chars(token.data(), token.data() + token.size(), number, 16);
    if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
    return number;
  }

  void Count(const std::string& tenant, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    all_bytes_ += bytes;
    const auto used = bytes_.emplace(tenant, 0).first;
    used->second += bytes;
    if (used->second == 0) bytes_.erase(used);
  }

  // Makes tokens of an earlier process an error: they would skip or repeat jobs.
  const std::string token_prefix_ = absl::StrFormat("%08x-", std::random_device()());

  mutable Mutex mutex_;
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> bytes_ ABSL_GUARDED_BY(mutex_);  // by tenant, not 0
  int64_t all_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Entry, std::greater<>> entries_ ABSL_GUARDED_BY(mutex_);  // newest first
  std::map<std::string, int64_t, std::less<>> numbers_ ABSL_GUARDED_BY(mutex_);
  std::map<Request, RequestRecord> requests_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Time, int64_t>> expiring_ ABSL_GUARDED_BY(mutex_);  // ended jobs
};

}  // namespace

absl::Status JobNotFound(std::string_view name) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "there is no job \"%s\"", name);
}

absl::Status CheckJobRoom(const JobRoom& room, const std::string& tenant, int64_t bytes,
                          const JobRoomUsed& used) {
  if (room.tenant_bytes.has_value() && bytes > *room.tenant_bytes - used.tenant_bytes) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrFormat(
            "kept jobs of tenant %s must count for at most max-job-bytes of %d bytes; they count "
            "for %d and this one for %d: delete jobs that have ended, or wait until they expire",
            tenant, *room.tenant_bytes, used.tenant_bytes, bytes)),
        "QUOTA_JOB_BYTES",
        {{"quota", "max-job-bytes"},
         {"limit", absl::StrFormat("%d", *room.tenant_bytes)},
         {"current", absl::StrFormat("%d", used.tenant_bytes)}});
  }
  if (bytes > room.all_bytes - used.all_bytes) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrFormat(
            "kept jobs must count for at most %d bytes; they count for %d and this one for %d: "
            "delete jobs that have ended, or wait until they expire",
            room.all_bytes, used.all_bytes, bytes)),
        "JOBS_FULL");
  }
  if (bytes > room.disk_bytes - used.disk_bytes) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrFormat(
            "the job and its end need %d bytes of the disk budget; the database and what is "
            "promised to jobs take %d, and beside the tensors there is room for %d",
            bytes, used.disk_bytes, room.disk_bytes)),
        "DISK_BUDGET", {{"retry_delay_ms", kRetryDelayMs}});
  }
  return absl::OkStatus();
}

std::unique_ptr<JobStore> NewMemoryJobStore() { return std::make_unique<MemoryJobStore>(); }

}  // namespace sparsefw::server
