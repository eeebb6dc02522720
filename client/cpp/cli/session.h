// Shared by the commands: the connection, output files, and the removal of
// uploaded tensors.
#ifndef SPARSEFW_CLIENT_CLI_SESSION_H_
#define SPARSEFW_CLIENT_CLI_SESSION_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cli/flags/options.h"
#include "client/cpp/cli/output/progress.h"
#include "sparsefw/client/client.h"

namespace sparsefw::cli {

// `display` shows what the client tries again, and must outlive the client. `stop` ends the wait
// with Cancelled.
absl::StatusOr<std::unique_ptr<client::Client>> Connect(const CommonOptions& common,
                                                        ProgressDisplay& display,
                                                        std::stop_token stop = {});

// `status` with `what` and a colon before the message.
absl::Status About(std::string_view what, const absl::Status& status);

// Names of tensors that a job made from files, kept as labels of the job.
inline constexpr char kWeightNameLabel[] = "sparsefw-cli.weight";  // in its file
inline constexpr char kInputsLabel[] = "sparsefw-cli.inputs";      // "delete": with the job
// The names of the uploaded inputs, in its place, where the others were on the server before.
inline constexpr char kUploadedLabel[] = "sparsefw-cli.uploaded";

// Removes the job's input tensors if this program uploaded them for it alone.
// A failure is only noted.
void DeleteInputs(client::Client& client, const v1::Job& job, ProgressDisplay& display);
void DeleteTensors(client::Client& client, const std::vector<std::string>& names,
                   ProgressDisplay& display);

// The job is about the layer [rows, cols] that was sent. Errors: Internal (PROTOCOL).
absl::Status CheckJobShape(const v1::Job& job, int64_t rows, int64_t cols);

// Downloads the mask, and the pruned weight where output.out_weights asks for it, and writes the
// files. Refuses tensors of another shape than the job's (PROTOCOL).
absl::Status WriteOutputs(client::Client& client, const v1::Job& job, const OutputOptions& output,
                          ProgressDisplay& display, const client::CallOptions& call = {});

// Warns where the loss of the result is that of new weights which `output` writes to no file.
void NoteWeightsWithoutFile(const v1::Job& job, const OutputOptions& output,
                            ProgressDisplay& display);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_SESSION_H_
