#include "server/jobs/kept_bytes.h"

#include <algorithm>

namespace sparsefw::server {
namespace {

// Upper ends of encoded sizes, strings apart; a test compares them with records.
constexpr int64_t kJobBytes = 1024;  // the row, its indexes, state changes, times
constexpr int64_t kLabelBytes = 48;  // its entries in the index besides
constexpr int64_t kPointBytes = 192;
constexpr int64_t kResultBytes = 448;
constexpr int64_t kErrorBytes = 64;
// Of what is not known before the end.
constexpr int64_t kRoomOfError = 1024;
constexpr int64_t kRoomOfOutcome = 768;  // a result with names of tensors, or an error

int64_t Size(const std::string& text) { return static_cast<int64_t>(text.size()); }

int64_t BytesOf(const absl::Status& error) {
  int64_t bytes = kErrorBytes + static_cast<int64_t>(error.message().size());
  error.ForEachPayload([&bytes](absl::string_view url, const absl::Cord& value) {
    bytes += static_cast<int64_t>(url.size() + value.size());
  });
  return bytes;
}

int64_t BytesOf(const JobResult& result) {
  int64_t bytes = kResultBytes + Size(result.mask) + Size(result.pruned_weight) +
                  Size(result.device) + BytesOf(result.incomplete);
  for (const auto& [error, point] : result.sweep) bytes += BytesOf(error) + BytesOf(point);
  return bytes;
}

int64_t BytesOf(const JobSpec& spec) {
  int64_t bytes = Size(spec.weight) + Size(spec.gram) + Size(spec.warm_mask) +
                  Size(spec.warm_saliency) + Size(spec.device) + Size(spec.traceparent);
  for (const auto& [key, value] : spec.labels) bytes += kLabelBytes + Size(key) + Size(value);
  return bytes + kPointBytes * (1 + std::ssize(spec.sweep));
}

}  // namespace

int64_t KeptBytes(const Job& job) {
  // The name and the request id are in the record, in the row and in an index.
  const int64_t bytes = kJobBytes + BytesOf(job.spec) +
                        3 * (Size(job.name) + Size(job.request_id)) +
                        6 * (Size(job.owner.tenant) + Size(job.owner.name));
  if (IsTerminal(job.state)) {
    return bytes + BytesOf(job.error) + (job.result.has_value() ? BytesOf(*job.result) : 0);
  }
  return bytes + kRoomOfError + kRoomOfOutcome * (1 + std::ssize(job.spec.sweep));
}

}  // namespace sparsefw::server
