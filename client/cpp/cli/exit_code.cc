#include "client/cpp/cli/exit_code.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "sparsefw/reason.h"

namespace sparsefw::cli {
namespace {

constexpr char kUrl[] = "sparsefw/exit_code";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  status.SetPayload(kUrl, absl::Cord(std::to_string(static_cast<int>(code))));
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  const auto payload = status.GetPayload(kUrl);
  int code = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &code)) {
    return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)
               ? ExitCode::kCredentials
               : ExitCode::kServer;
  }
  return static_cast<ExitCode>(code);
}

absl::Status MarkRefusedOptions(absl::Status status) {
  if (!HasReason(status, "OPTION_INVALID") && !HasReason(status, "CLIENT_ARGUMENT")) return status;
  return WithExitCode(std::move(status), ExitCode::kUsage);
}

absl::Status UsageError(std::string_view message) {
  return WithExitCode(absl::InvalidArgumentError(View(message)), ExitCode::kUsage);
}

absl::Status FileError(absl::Status status) {
  return WithExitCode(std::move(status), ExitCode::kUsage);
}

absl::Status FileError(std::string_view message) {
  return FileError(absl::InvalidArgumentError(View(message)));
}

absl::Status OutOfMemory(std::string_view path) {
  return FileError(std::string(path) + ": there is too little memory for it");
}

}  // namespace sparsefw::cli
