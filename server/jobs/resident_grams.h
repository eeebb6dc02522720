// The Gram matrices that stay on one device: who uses them, what may go.
#ifndef SPARSEFW_SERVER_JOBS_RESIDENT_GRAMS_H_
#define SPARSEFW_SERVER_JOBS_RESIDENT_GRAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/jobs/shared_gram.h"

namespace sparsefw::server {

// Plain bookkeeping, without a lock. A Gram is in use while a job that runs on
// the device names it, otherwise idle.
class ResidentGrams {
 public:
  struct Evicted {
    int64_t bytes = 0;
    std::shared_ptr<SharedGram> gram;
  };

  bool Has(const std::string& name) const { return entries_.contains(name); }
  bool InUse(const std::string& name) const;
  int64_t idle_bytes() const { return idle_bytes_; }
  int64_t bytes() const { return bytes_; }

  // By one more job, until LetGo. One that is not there is put there.
  std::shared_ptr<SharedGram> Use(const std::string& name, int64_t bytes,
                                  const std::shared_ptr<GramCacheStats>& stats);
  void Release(const std::string& name);

  // Takes it off the books; nothing when it is in use or not there.
  std::vector<Evicted> Evict(const std::string& name);
  // Idle ones, those that are so for longest first, until together they have `bytes`
  // or there are no more.
  std::vector<Evicted> EvictIdle(int64_t bytes);

 private:
  struct Entry {
    int64_t bytes = 0;
    int users = 0;
    int64_t idle_since = 0;  // grows with every Gram that becomes idle
    std::shared_ptr<SharedGram> gram;
  };

  using Entries = std::map<std::string, Entry>;
  Evicted Remove(Entries::iterator entry);

  Entries entries_;
  int64_t bytes_ = 0;
  int64_t idle_bytes_ = 0;  // of these
  int64_t idle_count_ = 0;  // so far
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_RESIDENT_GRAMS_H_
