#include "absl/strings/str_format.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

std::vector<SweepPoint> PointsOf(const JobSpec& spec) {
  if (!spec.sweep.empty()) return spec.sweep;
  return {SweepPoint{spec.pattern, spec.options}};
}

absl::Status AtPoint(size_t index, const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status named(status.code(),
                     absl::StrFormat("sweep.points[%d]: %s", index, std::string(status.message())));
  status.ForEachPayload([&named](absl::string_view url, const absl::Cord& payload) {
    named.SetPayload(url, payload);
  });
  return named;
}

absl::Status CheckPoints(const JobSpec& spec,
                         const std::function<absl::Status(const SweepPoint&)>& check) {
  if (spec.sweep.empty()) return check({spec.pattern, spec.options});
  for (size_t index = 0; index < spec.sweep.size(); ++index) {
    if (absl::Status status = check(spec.sweep[index]); !status.ok()) {
      return AtPoint(index, status);
    }
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::server
