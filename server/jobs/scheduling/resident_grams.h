// The Gram matrices that are resident on one device.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_RESIDENT_GRAMS_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_RESIDENT_GRAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/jobs/scheduling/shared_gram.h"

namespace sparsefw::server {

// Bookkeeping without a lock. A Gram is in use while a job that runs on the device
// uses it, otherwise idle.
class ResidentGrams {
 public:
  struct Unlinked {
    int64_t bytes = 0;
    std::shared_ptr<SharedGram> gram;
  };

  bool Has(const std::string& name) const { return entries_.contains(name); }
  bool InUse(const std::string& name) const;
  int64_t idle_bytes() const { return idle_bytes_; }
  int64_t bytes() const { return bytes_; }

  // One more job uses the Gram, until Release. Adds it where it is not resident.
  std::shared_ptr<SharedGram> Use(const std::string& name, int64_t bytes,
                                  const std::shared_ptr<GramCacheStats>& stats);
  void Release(const std::string& name);

  // Unlinks it; nothing when it is in use or not resident.
  std::vector<Unlinked> Evict(const std::string& name);
  // Unlinks idle Grams, the longest idle first, until they have `bytes` together.
  std::vector<Unlinked> EvictIdle(int64_t bytes);

 private:
  struct Entry {
    int64_t bytes = 0;
    int users = 0;
    int64_t idle_since = 0;  // grows with every Gram that becomes idle
    std::shared_ptr<SharedGram> gram;
  };

  using Entries = std::map<std::string, Entry>;
  Unlinked Remove(Entries::iterator entry);

  Entries entries_;
  int64_t bytes_ = 0;
  int64_t idle_bytes_ = 0;  // of these
  int64_t idle_count_ = 0;  // so far
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_RESIDENT_GRAMS_H_
