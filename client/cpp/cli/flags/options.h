// The parsed command line.
#ifndef SPARSEFW_CLIENT_CLI_OPTIONS_H_
#define SPARSEFW_CLIENT_CLI_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sparsefw/dtype.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// Flags of every command.
struct CommonOptions {
  std::string server;  // or SPARSEFW_SERVER
  std::string tls_ca;  // or SPARSEFW_TLS_CA
  std::string tls_cert;
  std::string tls_key;
  std::string token_file;                       // else `token`
  std::string token;                            // SPARSEFW_TOKEN
  std::string traceparent;                      // TRACEPARENT, else new
  absl::Duration timeout = absl::Seconds(5);    // for the first connection
  absl::Duration retry_for = absl::Minutes(1);  // without progress, once connected
  bool json = false;
  bool quiet = false;  // no progress
};

struct OutputOptions {
  std::string out;
  std::string out_weights;
  bool overwrite = false;
  bool keep_tensors = false;
};

struct SubmitOptions {
  CommonOptions common;
  std::string weights;  // FILE[:TENSOR], as the next four
  std::string gram;     // these two also tensors/<id>
  std::vector<std::string> activations;
  std::string warm_mask;
  std::string saliency;
  v1::JobSpec spec;  // all but the tensors
  bool detach = false;
  OutputOptions output;
};

struct JobOptions {
  CommonOptions common;
  std::string job;  // "jobs/<id>"
};
struct StatusOptions : JobOptions {};
struct WatchOptions : JobOptions {};
struct CancelOptions : JobOptions {};
struct DeleteOptions : JobOptions {};
struct FetchOptions : JobOptions {
  OutputOptions output;
};

struct ListOptions {
  CommonOptions common;
  std::vector<v1::JobState> states;
  std::map<std::string, std::string> labels;
  int64_t limit = 0;
};

struct GramOptions {
  CommonOptions common;
  std::vector<std::string> activations;
  std::string out;
  DType dtype = DType::kF32;
  bool overwrite = false;
  bool keep_tensors = false;
};

struct InfoOptions {
  CommonOptions common;
};

struct HealthOptions {
  CommonOptions common;
};

// --help or --version: print and end well.
struct PrintText {
  std::string text;
};

using Command =
    std::variant<SubmitOptions, StatusOptions, WatchOptions, FetchOptions, CancelOptions,
                 DeleteOptions, ListOptions, GramOptions, InfoOptions, HealthOptions, PrintText>;

// Errors: exit code 2; the message names the flag.
absl::StatusOr<Command> ParseCommandLine(int argc, const char* const* argv);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_OPTIONS_H_
