// The pruned model: the folder as it was, but for the bytes of the pruned matrices.
#ifndef SPARSEFW_CLIENT_CLI_MODEL_OUTPUT_FOLDER_H_
#define SPARSEFW_CLIENT_CLI_MODEL_OUTPUT_FOLDER_H_

#include <filesystem>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cli/model/checkpoint.h"
#include "client/cpp/cli/model/layers.h"
#include "client/cpp/cli/model/run_state.h"

namespace sparsefw::cli {

// In a pruned model: what was done to it.
inline constexpr char kModelFacts[] = "sparsefw.json";

// Errors (exit code 2): `out` exists and no earlier run has written it; it is the model's folder,
// or in it.
absl::Status CheckOutputFolder(const std::filesystem::path& out, const std::string& model);

// Bytes of the pruned matrix: those of the record, or the matrix with zeros where the mask says so.
absl::StatusOr<std::vector<std::byte>> PrunedBytes(const ModelLayer& layer,
                                                   const LayerRecord& record);

// Copies every file of the model, puts the pruned matrices in their places and `facts` beside them,
// and moves the folder to `out` when it is complete. `record` is asked for each layer in turn.
absl::Status WriteOutputFolder(
    const std::filesystem::path& out, const Checkpoint& checkpoint, const ModelLayers& layers,
    const Json& facts, const std::function<absl::StatusOr<LayerRecord>(size_t layer)>& record);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_MODEL_OUTPUT_FOLDER_H_
