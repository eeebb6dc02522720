// The store's tensors, or its uploads, by id and by age.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_AGE_TABLE_H_
#define SPARSEFW_SERVER_TENSORS_STORE_AGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sparsefw::server {

// Newer entries have higher numbers, which are never used again. Not thread-safe.
template <typename T>
class AgeTable {
 public:
  void Insert(std::shared_ptr<T> entry) {
    const uint64_t number = entry->number();
    numbers_.emplace(entry->origin().id, number);
    by_age_.emplace(number, std::move(entry));
  }
  // Null when there is none.
  std::shared_ptr<T> Find(std::string_view id) const {
    const auto found = numbers_.find(std::string(id));
    return found == numbers_.end() ? nullptr : by_age_.at(found->second);
  }
  void Erase(std::string_view id) {
    const auto found = numbers_.find(std::string(id));
    if (found == numbers_.end()) return;
    by_age_.erase(found->second);
    numbers_.erase(found);
  }
  size_t size() const { return by_age_.size(); }
  // Pairs of number and entry, newest first.
  auto begin() const { return by_age_.begin(); }
  auto end() const { return by_age_.end(); }

  // Up to `count` entries for which `chooses` is true, newest first, with numbers below `before`. A
  // walk over the pages sees every entry once that was there all the time, whatever else comes and
  // goes. A page looks at kLooks entries at most and may be short: it is found under a lock.
  // Clients follow 1000 empty pages in a row, so it suffices for 20 million entries of other
  // tenants.
  static constexpr int kLooks = 20'000;
  struct Page {
    std::vector<std::shared_ptr<T>> entries;
    std::optional<uint64_t> next;  // `before` of the next page, if there is one
  };
  template <typename Predicate>
  Page List(size_t count, uint64_t before, Predicate chooses) const {
    Page page;
    uint64_t last = before;  // that was looked at
    int looks = 0;
    // The map runs from new to old: upper_bound is the first one below `before`.
    for (auto at = by_age_.upper_bound(before); at != by_age_.end(); ++at) {
      const bool chosen = chooses(*at->second);
      if (++looks > kLooks || (chosen && page.entries.size() == count)) {
        page.next = last;
        break;
      }
      if (chosen) page.entries.push_back(at->second);
      last = at->first;
    }
    return page;
  }

  // Takes out the entries for which `chooses` is true.
  template <typename Predicate>
  std::vector<std::shared_ptr<T>> TakeIf(Predicate chooses) {
    std::vector<std::shared_ptr<T>> taken;
    for (auto at = by_age_.begin(); at != by_age_.end();) {
      if (!chooses(*at->second)) {
        ++at;
        continue;
      }
      numbers_.erase(at->second->origin().id);
      taken.push_back(std::move(at->second));
      at = by_age_.erase(at);
    }
    return taken;
  }

 private:
  std::map<uint64_t, std::shared_ptr<T>, std::greater<>> by_age_;
  std::unordered_map<std::string, uint64_t> numbers_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_AGE_TABLE_H_
