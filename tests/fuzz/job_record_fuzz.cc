// A job and its progress as the database keeps them.
#include <string>

#include "server/rpc/convert/convert.h"
#include "server/storage/job_record.h"
#include "sparsefw/reason.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw;  // NOLINT: one function
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  server::Job other;
  if (server::DecodeProgress(bytes, &other).ok()) {
    static_cast<void>(server::EncodeProgress(
        {other.progress.value_or(sparsefw::ProgressReport()), other.revision}));
    static_cast<void>(server::ToProto(other).ByteSizeLong());
  }
  const auto job = server::DecodeJob(bytes);
  if (!job.ok()) {
    fuzz::Require(ReasonOf(job.status()) == "STORE_FAILED", "a refusal has its reason");
    return 0;
  }
  // Whatever a record holds, it can be told to a client and kept again.
  static_cast<void>(server::ToProto(*job).SerializeAsString());
  const std::string kept = server::EncodeJob(*job);
  const auto again = server::DecodeJob(kept);
  fuzz::Require(again.ok(), "what was kept can be read");
  // absl gives the payloads of a status in any order.
  fuzz::Require(server::EncodeJob(*again).size() == kept.size(), "and is as large");
  return 0;
}
