#include "server/jobs/scheduling/resident_grams.h"

#include <cassert>
#include <utility>

namespace sparsefw::server {

bool ResidentGrams::InUse(const std::string& name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() && found->second.users > 0;
}

std::shared_ptr<SharedGram> ResidentGrams::Use(const std::string& name, int64_t bytes,
                                               const std::shared_ptr<GramCacheStats>& stats) {
  const auto [found, is_new] = entries_.try_emplace(name);
  Entry& entry = found->second;
  if (is_new) {
    entry.bytes = bytes;
    entry.gram = std::make_shared<SharedGram>(stats);
    bytes_ += bytes;
  } else if (entry.users == 0) {
    idle_bytes_ -= entry.bytes;
  }
  ++entry.users;
  return entry.gram;
}

void ResidentGrams::Release(const std::string& name) {
  const auto found = entries_.find(name);
  assert(found != entries_.end() && found->second.users > 0);
  Entry& entry = found->second;
  if (--entry.users > 0) return;
  entry.idle_since = ++idle_count_;
  idle_bytes_ += entry.bytes;
}

std::vector<ResidentGrams::Unlinked> ResidentGrams::Evict(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.users > 0) return {};
  return {Remove(found)};
}

std::vector<ResidentGrams::Unlinked> ResidentGrams::EvictIdle(int64_t bytes) {
  std::vector<Unlinked> all;
  while (bytes > 0) {
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second.users > 0) continue;
      if (oldest == entries_.end() || entry->second.idle_since < oldest->second.idle_since) {
        oldest = entry;
      }
    }
    if (oldest == entries_.end()) break;
    bytes -= oldest->second.bytes;
    all.push_back(Remove(oldest));
  }
  return all;
}

ResidentGrams::Unlinked ResidentGrams::Remove(Entries::iterator entry) {
  Unlinked gram = {entry->second.bytes, std::move(entry->second.gram)};
  entries_.erase(entry);
  bytes_ -= gram.bytes;
  idle_bytes_ -= gram.bytes;
  return gram;
}

}  // namespace sparsefw::server
