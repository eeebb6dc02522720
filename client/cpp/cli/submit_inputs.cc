#include "client/cpp/cli/submit_inputs.h"

#include <array>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/files/calibration.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

constexpr std::array kFloats = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array kGrams = {DType::kF32, DType::kF64};
constexpr std::array kScores = {DType::kF32};
constexpr std::array kMasks = {DType::kBool};

absl::StatusOr<std::optional<Input>> LoadOptional(const std::string& text,
                                                  std::span<const DType> allowed) {
  if (text.empty()) return std::nullopt;
  SPARSEFW_ASSIGN_OR_RETURN(Input input, LoadInput(text, allowed));
  return std::optional<Input>(std::move(input));
}

absl::Status CheckShapes(const SubmitInputs& inputs) {
  const Input& weight = inputs.weight;
  if (!weight.name.empty()) return absl::OkStatus();
  if (inputs.gram && inputs.gram->name.empty()) {
    SPARSEFW_RETURN_IF_ERROR(CheckGram(*inputs.gram, weight));
  }
  for (const Input& batch : inputs.activations) {
    SPARSEFW_RETURN_IF_ERROR(CheckActivations(batch, weight));
  }
  for (const auto* start : {&inputs.warm_mask, &inputs.saliency}) {
    if (*start) SPARSEFW_RETURN_IF_ERROR(CheckShape(**start, weight.rows, weight.cols, weight));
  }
  return absl::OkStatus();
}

// The server would refuse it too, but after the upload.
absl::Status CheckPattern(const v1::Pattern& pattern, const Input& weight) {
  const int64_t group = pattern.nm().group();
  if (!pattern.has_nm() || !weight.name.empty() || weight.cols % group == 0)
    return absl::OkStatus();
  return UsageError(
      absl::StrFormat("--pattern %d:%d: the %d inputs (columns) of %s must be divisible by %d",
                      pattern.nm().keep(), group, weight.cols, weight.label, group));
}

}  // namespace

absl::StatusOr<SubmitInputs> LoadSubmitInputs(const SubmitOptions& options) {
  SubmitInputs inputs;
  SPARSEFW_ASSIGN_OR_RETURN(inputs.weight, LoadOrName(options.weights, kFloats));
  if (!options.gram.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(inputs.gram, LoadOrName(options.gram, kGrams));
  }
  SPARSEFW_ASSIGN_OR_RETURN(inputs.activations, LoadActivations(options.activations));
  SPARSEFW_ASSIGN_OR_RETURN(inputs.warm_mask, LoadOptional(options.warm_mask, kMasks));
  SPARSEFW_ASSIGN_OR_RETURN(inputs.saliency, LoadOptional(options.saliency, kScores));
  SPARSEFW_RETURN_IF_ERROR(CheckShapes(inputs));
  SPARSEFW_RETURN_IF_ERROR(CheckPattern(options.spec.pattern(), inputs.weight));
  return inputs;
}

absl::Status CheckOutputs(const OutputOptions& output, const SubmitInputs& inputs) {
  for (const auto& [flag, path] : {std::pair<const char*, const std::string&>("--out", output.out),
                                   {"--out-weights", output.out_weights}}) {
    if (path.empty()) continue;
    std::vector<const Input*> all = {&inputs.weight};
    if (inputs.gram) all.push_back(&*inputs.gram);
    for (const Input& batch : inputs.activations) all.push_back(&batch);
    if (inputs.warm_mask) all.push_back(&*inputs.warm_mask);
    if (inputs.saliency) all.push_back(&*inputs.saliency);
    for (const Input* input : all) {
      if (input->name.empty() && SameFile(path, input->path)) {
        return UsageError(absl::StrFormat("%s: %s is an input and would be lost", flag, path));
      }
    }
    SPARSEFW_RETURN_IF_ERROR(CheckWritable(flag, path, output.overwrite));
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::cli
