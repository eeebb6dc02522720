// The store's lists of tensors and uploads, page by page.
#include <algorithm>
#include <limits>
#include <utility>

#include "server/tensors/store/page_token.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Where a page begins: everything on it has a position below this.
absl::StatusOr<uint64_t> StartOf(int page_size, std::string_view page_token,
                                 std::string_view salt) {
  if (page_size < 1) {
    return Invalid("PAGE_SIZE_INVALID", "page_size must be at least 1; got %d", page_size);
  }
  if (page_token.empty()) return std::numeric_limits<uint64_t>::max();
  const auto position = DecodePageToken(page_token, salt);
  if (!position) {
    return Invalid("PAGE_TOKEN_INVALID",
                   "page_token must be empty or the next_page_token of a page of this "
                   "server; got \"%s\"",
                   Printable(page_token));
  }
  return *position;
}

bool Chooses(const TensorFilter& filter, const StoredTensor& tensor) {
  const Owner& owner = tensor.origin().owner;
  const TensorKind kind = tensor.spec().kind;
  return (filter.tenant.empty() || owner.tenant == filter.tenant) &&
         (filter.owner.empty() || owner.name == filter.owner) &&
         (filter.kinds.empty() || std::ranges::find(filter.kinds, kind) != filter.kinds.end());
}

}  // namespace

absl::StatusOr<TensorStore::Page> TensorStore::ListTensors(int page_size,
                                                           std::string_view page_token,
                                                           const TensorFilter& filter) {
  SPARSEFW_ASSIGN_OR_RETURN(const uint64_t before, StartOf(page_size, page_token, token_salt_));
  AgeTable<StoredTensor>::Page
      found;  // may hold the last reference to a tensor: gone after the lock
  Page page;
  {
    MutexLock lock(mutex_);
    found =
        tensors_.List(static_cast<size_t>(page_size), before,
                      [&filter](const StoredTensor& tensor) { return Chooses(filter, tensor); });
  }
  for (const auto& tensor : found.entries) page.tensors.push_back(tensor->Info());
  if (found.next) page.next_page_token = EncodePageToken(*found.next, token_salt_);
  return page;
}

absl::StatusOr<TensorStore::UploadPage> TensorStore::ListUploads(int page_size,
                                                                 std::string_view page_token,
                                                                 std::string_view tenant) {
  SPARSEFW_ASSIGN_OR_RETURN(const uint64_t before, StartOf(page_size, page_token, upload_salt_));
  AgeTable<Upload>::Page found;
  {
    MutexLock lock(mutex_);
    found = uploads_.List(static_cast<size_t>(page_size), before, [tenant](const Upload& upload) {
      return tenant.empty() || upload.origin().owner.tenant == tenant;
    });
  }
  UploadPage page;
  if (found.next) page.next_page_token = EncodePageToken(*found.next, upload_salt_);
  for (const auto& upload : found.entries) {
    // The upload has ended in between.
    absl::StatusOr<UploadInfo> info = upload->Info();
    if (info.ok()) {
      page.uploads.push_back(*std::move(info));
    } else if (!absl::IsNotFound(info.status())) {
      return info.status();
    }
  }
  return page;
}

}  // namespace sparsefw::server
