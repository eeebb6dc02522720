// The complete tensors, by name and by age.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_TENSOR_TABLE_H_
#define SPARSEFW_SERVER_TENSORS_STORE_TENSOR_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "server/tensors/store/stored_tensor.h"
#include "server/tensors/tensor_store.h"

namespace sparsefw::server {

// Not thread-safe.
class TensorTable {
 public:
  void Insert(std::shared_ptr<StoredTensor> tensor);
  // Null when there is none.
  std::shared_ptr<StoredTensor> Find(std::string_view id) const;
  void Erase(std::string_view id);
  size_t size() const { return by_age_.size(); }

  // Up to `count` tensors that the filter chooses, newest first, with numbers below `before`.
  // Numbers are never used again, so that a walk over the pages sees every tensor once that was
  // there all the time, whatever else comes and goes.
  struct Page {
    std::vector<std::shared_ptr<StoredTensor>> tensors;
    std::optional<uint64_t> next;  // `before` of the next page, if there is one
  };
  Page List(size_t count, uint64_t before, const TensorFilter& filter) const;

  // Takes out the tensors that have expired and that nobody holds. Being held is
  // being used.
  std::vector<std::shared_ptr<StoredTensor>> TakeExpired(absl::Time steady, absl::Time expiry);
  // Takes out the results of a job that nobody holds.
  std::vector<std::shared_ptr<StoredTensor>> TakeResultsOf(std::string_view job);
  std::vector<std::shared_ptr<StoredTensor>> All() const;

 private:
  template <typename Predicate>
  std::vector<std::shared_ptr<StoredTensor>> TakeIf(Predicate predicate);

  std::map<uint64_t, std::shared_ptr<StoredTensor>, std::greater<>> by_age_;  // by number
  std::unordered_map<std::string, uint64_t> positions_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_TENSOR_TABLE_H_
