// Requests about jobs as they come from the wire: parsed, converted, checked, converted back.

#include "server/jobs/job.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "sparsefw/solver.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw::server;  // NOLINT: one function
  sparsefw::v1::CreateJobRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  static_cast<void>(JobDigestOf("CreateJob", request));
  const auto spec = FromProto(request.spec());
  if (!spec.ok()) return 0;
  for (const sparsefw::SweepPoint& point : PointsOf(*spec)) {
    static_cast<void>(ValidateOptions(point.options).ok());
    static_cast<void>(ValidatePattern(point.pattern, 16, 32).ok());
  }
  const auto again = FromProto(ToProto(*spec));
  sparsefw::fuzz::Require(again.ok(), "what was accepted is accepted again");
  const auto fingerprint = [](const JobSpec& one) {
    sparsefw::v1::CreateJobRequest whole;
    *whole.mutable_spec() = ToProto(one);
    return JobDigestOf("CreateJob", whole).now;
  };
  sparsefw::fuzz::Require(fingerprint(*again) == fingerprint(*spec),
                          "conversion to the wire and back changes nothing");
  return 0;
}
