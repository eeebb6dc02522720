#include "server/tensors/store/tensor_table.h"

#include <utility>

namespace sparsefw::server {

void TensorTable::Insert(std::shared_ptr<StoredTensor> tensor) {
  positions_.emplace(tensor->origin().id, next_position_);
  by_age_.emplace(next_position_, std::move(tensor));
  ++next_position_;
}

std::shared_ptr<StoredTensor> TensorTable::Find(std::string_view id) const {
  const auto position = positions_.find(std::string(id));
  return position == positions_.end() ? nullptr : by_age_.at(position->second);
}

void TensorTable::Erase(std::string_view id) {
  const auto position = positions_.find(std::string(id));
  if (position == positions_.end()) return;
  by_age_.erase(position->second);
  positions_.erase(position);
}

TensorTable::Page TensorTable::List(size_t count, uint64_t before) const {
  Page page;
  // The map runs from new to old: upper_bound is the first one below `before`.
  for (auto at = by_age_.upper_bound(before); at != by_age_.end(); ++at) {
    if (page.tensors.size() == count) {
      page.next = std::prev(at)->first;
      break;
    }
    page.tensors.push_back(at->second);
  }
  return page;
}

std::vector<std::shared_ptr<StoredTensor>> TensorTable::TakeExpired(absl::Time now) {
  std::vector<std::shared_ptr<StoredTensor>> taken;
  for (auto at = by_age_.begin(); at != by_age_.end();) {
    if (at->second->expire_time() > now || at->second->references() > 0) {
      ++at;
      continue;
    }
    positions_.erase(at->second->origin().id);
    taken.push_back(std::move(at->second));
    at = by_age_.erase(at);
  }
  return taken;
}

}  // namespace sparsefw::server
