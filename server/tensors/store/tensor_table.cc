#include "server/tensors/store/tensor_table.h"

#include <algorithm>
#include <utility>

namespace sparsefw::server {

void TensorTable::Insert(std::shared_ptr<StoredTensor> tensor) {
  const auto position = static_cast<uint64_t>(tensor->number());
  positions_.emplace(tensor->origin().id, position);
  by_age_.emplace(position, std::move(tensor));
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

namespace {

bool Chooses(const TensorFilter& filter, const StoredTensor& tensor) {
  const Owner& owner = tensor.origin().owner;
  const TensorKind kind = tensor.spec().kind;
  return (filter.tenant.empty() || owner.tenant == filter.tenant) &&
         (filter.owner.empty() || owner.name == filter.owner) &&
         (filter.kinds.empty() || std::ranges::find(filter.kinds, kind) != filter.kinds.end());
}

}  // namespace

TensorTable::Page TensorTable::List(size_t count, uint64_t before,
                                    const TensorFilter& filter) const {
  Page page;
  // The map runs from new to old: upper_bound is the first one below `before`.
  for (auto at = by_age_.upper_bound(before); at != by_age_.end(); ++at) {
    if (!Chooses(filter, *at->second)) continue;
    if (page.tensors.size() == count) {
      page.next = static_cast<uint64_t>(page.tensors.back()->number());
      break;
    }
    page.tensors.push_back(at->second);
  }
  return page;
}

template <typename Predicate>
std::vector<std::shared_ptr<StoredTensor>> TensorTable::TakeIf(Predicate predicate) {
  std::vector<std::shared_ptr<StoredTensor>> taken;
  for (auto at = by_age_.begin(); at != by_age_.end();) {
    if (!predicate(*at->second)) {
      ++at;
      continue;
    }
    positions_.erase(at->second->origin().id);
    taken.push_back(std::move(at->second));
    at = by_age_.erase(at);
  }
  return taken;
}

std::vector<std::shared_ptr<StoredTensor>> TensorTable::TakeExpired(absl::Time steady,
                                                                    absl::Time expiry) {
  return TakeIf([steady, expiry](StoredTensor& tensor) {
    if (tensor.references() > 0) {
      tensor.Touch(steady);
      return false;
    }
    return tensor.Expired(steady, expiry);
  });
}

std::vector<std::shared_ptr<StoredTensor>> TensorTable::TakeResultsOf(std::string_view job) {
  return TakeIf([job](const StoredTensor& tensor) {
    return tensor.origin().job == job && tensor.references() == 0;
  });
}

std::vector<std::shared_ptr<StoredTensor>> TensorTable::All() const {
  std::vector<std::shared_ptr<StoredTensor>> all;
  all.reserve(by_age_.size());
  for (const auto& [number, tensor] : by_age_) all.push_back(tensor);
  return all;
}

}  // namespace sparsefw::server
