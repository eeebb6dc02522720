#include "client/cpp/cli/trace.h"

#include "absl/strings/cord.h"
#include "client/cpp/cli/exit_code.h"
#include "sparsefw/client/options.h"
#include "sparsefw/reason.h"

namespace sparsefw::cli {
namespace {

constexpr char kUrl[] = "sparsefw/trace";

}  // namespace

std::string TraceparentFor(std::string_view given) {
  return client::IsTraceparent(given) ? std::string(given) : client::NewTraceparent();
}

absl::Status WithTrace(absl::Status status, std::string_view traceparent) {
  const ExitCode code = ExitCodeOf(status);
  if (code != ExitCode::kServer && code != ExitCode::kCredentials) return status;
  if (HasReason(status, "UNREACHABLE")) return status;
  status.SetPayload(kUrl, absl::Cord(std::string(traceparent.substr(3, 32))));
  return status;
}

std::string TraceNote(const absl::Status& status) {
  const auto trace = status.GetPayload(kUrl);
  return trace ? " [trace " + std::string(*trace) + "]" : "";
}

}  // namespace sparsefw::cli
