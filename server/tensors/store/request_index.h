// Which upload or tensor a request id has made.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_REQUEST_INDEX_H_
#define SPARSEFW_SERVER_TENSORS_STORE_REQUEST_INDEX_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "server/tensors/tensor_store.h"

namespace sparsefw::server {

// All that a creating request says besides its id.
struct RequestBody {
  std::variant<TensorSpec, GramSpec> spec;
  Owner owner;
  std::string fingerprint;  // of the whole request; empty: of an earlier version, or not given
};

// An entry lives as long as the upload and the tensor that it becomes, so its
// size is bounded by theirs. Not thread-safe.
class RequestIndex {
 public:
  struct Entry {
    RequestBody body;
    std::string id;  // of the upload and of the tensor
  };

  // Null when there is none.
  const Entry* Find(std::string_view tenant, std::string_view request_id) const {
    const auto found = entries_.find(Key(tenant, request_id));
    return found == entries_.end() ? nullptr : &found->second;
  }
  // Empty ids are not kept.
  void Insert(std::string_view request_id, RequestBody body, std::string id) {
    if (request_id.empty()) return;
    Key key(body.owner.tenant, request_id);
    entries_.emplace(std::move(key), Entry{std::move(body), std::move(id)});
  }
  void Erase(std::string_view tenant, std::string_view request_id) {
    entries_.erase(Key(tenant, request_id));
  }

 private:
  // A tenant's request ids are its own.
  using Key = std::pair<std::string, std::string>;

  std::map<Key, Entry> entries_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_REQUEST_INDEX_H_
