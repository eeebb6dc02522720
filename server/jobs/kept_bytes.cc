#include <algorithm>

#include "server/jobs/job_store.h"

namespace sparsefw::server {
namespace {

// Upper ends of encoded sizes, strings apart; tests compare them with records and with what a
// database takes.
constexpr int64_t kRecordBytes = 320;  // times and numbers
constexpr int64_t kStateBytes = 12;    // of a change
constexpr int64_t kMostStates = 64;    // of which the history keeps the newest
constexpr int64_t kPointBytes = 192;
constexpr int64_t kLabelBytes = 12;
constexpr int64_t kNameBytes = 3;  // of an option
constexpr int64_t kResultBytes = 448;
constexpr int64_t kErrorBytes = 64;
constexpr int64_t kProgressBytes = 208;  // in the record or beside it
constexpr int64_t kRowBytes = 160;       // columns beside the record, the request's fingerprint too
// Room for what is not known before the end.
constexpr int64_t kRoomOfError = 1024;
constexpr int64_t kRoomOfOutcome = 768;  // a result with names of tensors, or an error

// Pages of a tree are half empty at worst. A large row shares a page with its first
// part only: the rest has pages of its own, and only the last of these has room left.
constexpr int64_t kMostLeftEmpty = 2560;
constexpr int64_t kPageBytes = 4092;      // of a row, on a page of its own
constexpr int64_t kIndexBytes = 256;      // entries of all indexes, strings apart, with empty room
constexpr int64_t kLabelIndexBytes = 96;  // of two indexes

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
  for (const std::string& name : spec.preset_overrides) bytes += kNameBytes + Size(name);
  return bytes + kPointBytes * (1 + std::ssize(spec.sweep));
}

// The record and the columns of its row.
int64_t BytesOfRow(const Job& job) {
  // The name, the tenant and the request id are in the record, and columns besides.
  const int64_t bytes = kRowBytes + kRecordBytes + kProgressBytes + BytesOf(job.spec) +
                        2 * (Size(job.name) + Size(job.request_id) + Size(job.owner.tenant)) +
                        Size(job.owner.name);
  if (IsTerminal(job.state)) {
    return bytes + kStateBytes * std::ssize(job.states) + BytesOf(job.error) +
           (job.result.has_value() ? BytesOf(*job.result) : 0);
  }
  return bytes + kStateBytes * kMostStates + kRoomOfError +
         kRoomOfOutcome * (1 + std::ssize(job.spec.sweep));
}

int64_t BytesOfIndexes(const Job& job) {
  return kIndexBytes + kLabelIndexBytes * std::ssize(job.spec.labels) +
         2 * (Size(job.name) + Size(job.request_id) + 3 * Size(job.owner.tenant));
}

}  // namespace

int64_t KeptBytes(const Job& job) {
  const int64_t row = BytesOfRow(job);
  const int64_t left_empty = std::min(row, kMostLeftEmpty) + 4 * (row / kPageBytes);
  return row + left_empty + BytesOfIndexes(job);
}

}  // namespace sparsefw::server
