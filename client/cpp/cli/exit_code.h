// Exit codes of the program, and the errors that carry them.
#ifndef SPARSEFW_CLIENT_CLI_EXIT_CODE_H_
#define SPARSEFW_CLIENT_CLI_EXIT_CODE_H_

#include <new>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"

namespace sparsefw::cli {

enum class ExitCode {
  kOk = 0,
  kUsage = 2,   // bad usage, bad input file, an output that cannot be written
  kServer = 3,  // refused, or not reached
  kJobFailed = 4,
  kNoMask = 5,       // cancelled or past its deadline without a mask
  kCredentials = 6,  // missing, wrong, expired, or not enough for what was asked
};

// Marks an error with the exit code of the program. An OK status stays as it is.
absl::Status WithExitCode(absl::Status status, ExitCode code);
// For an error without a mark, which came from the client library: kCredentials where
// the server refused them, else kServer.
ExitCode ExitCodeOf(const absl::Status& status);

// Bad usage: `message` names the flag.
absl::Status UsageError(std::string_view message);
// `status` with kUsage where the server refuses the options (OPTION_INVALID), or the client library
// an address or a token (CLIENT_ARGUMENT).
absl::Status MarkRefusedOptions(absl::Status status);
// `status` is about a local file.
absl::Status FileError(absl::Status status);
// `message` begins with the path.
absl::Status FileError(std::string_view message);

// A FileError: this machine has too little memory for `path`.
absl::Status OutOfMemory(std::string_view path);
// What `work` returns; `error` where memory runs out in it.
template <typename Work>
std::invoke_result_t<Work> WithinMemory(const absl::Status& error, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return error;
  }
}

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_EXIT_CODE_H_
