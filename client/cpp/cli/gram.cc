// `gram`: activations up, their Gram matrix down.
#include <array>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/output/json_text.h"
#include "client/cpp/cli/session.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/printable.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

absl::Status Write(const GramOptions& options, const client::TensorData& gram,
                   const std::string& source) {
  const auto& dims = gram.tensor.spec().dims();
  const SafetensorsTensor tensor{"gram", options.dtype,
                                 std::vector<int64_t>(dims.begin(), dims.end()), gram.bytes};
  return FileError(WriteSafetensors(
      options.out, std::span(&tensor, 1),
      {{"token_count", std::to_string(gram.tensor.spec().token_count())}, {"source", source}}));
}

absl::Status Failed(const absl::Status& status) {
  if (!absl::IsCancelled(status)) return status;
  return WithExitCode(absl::CancelledError("cancelled before the Gram matrix was written"),
                      ExitCode::kNoMask);
}

}  // namespace

absl::Status Run(const GramOptions& options, const Console& console) {
  constexpr std::array kFloats = {DType::kF32, DType::kF16, DType::kBF16};
  SPARSEFW_ASSIGN_OR_RETURN(const Input input, LoadInput(options.activations, kFloats));
  if (SameFile(options.out, input.path)) {
    return UsageError(absl::StrFormat("--out: %s is an input and would be lost", options.out));
  }
  SPARSEFW_RETURN_IF_ERROR(CheckWritable("--out", options.out));
  std::stop_source stop;
  const Interrupt interrupt([&stop](int) { stop.request_stop(); });
  const client::CallOptions call{stop.get_token()};
  ProgressDisplay display(console, absl::Now, options.common.quiet);
  SPARSEFW_ASSIGN_OR_RETURN(const auto client, Connect(options.common, display));
  const auto on_transfer = [&display](const client::TransferProgress& progress) {
    display.OnTransfer(progress);
  };

  display.StartTransfer("uploading", input.label);
  const auto gram = client->UploadGramFromActivations(
      client::ActivationSpec(input.dtype, input.cols, options.dtype), input.bytes, on_transfer,
      call);
  if (!gram.ok()) return Failed(About(input.label, gram.status()));
  display.EndTransfer();
  display.StartTransfer("downloading", options.out);
  const auto data = client->ReadTensor(gram->name(), on_transfer, call,
                                       client::GramTensorSpec(options.dtype, input.cols));
  if (data.ok()) display.EndTransfer();
  absl::Status status = data.ok() ? Write(options, *data, input.label) : data.status();
  if (!options.keep_tensors) DeleteTensors(*client, {gram->name()}, display);
  if (!status.ok()) return Failed(status);

  const int64_t tokens = gram->spec().token_count();
  if (options.common.json) {
    using Json = nlohmann::ordered_json;
    console.out << JsonText(
        Json{{"gram", options.out},
             {"tensor", options.keep_tensors ? Json(gram->name()) : Json(nullptr)},
             {"d_in", input.cols},
             {"dtype", std::string(DTypeName(options.dtype))},
             {"token_count", tokens}});
  } else {
    const std::string kept = options.keep_tensors ? ", kept as " + gram->name() : "";
    console.out << client::Printable(absl::StrFormat("%s  Gram [%d, %d] %s of %d tokens%s",
                                                     options.out, input.cols, input.cols,
                                                     DTypeName(options.dtype), tokens, kept))
                << "\n";
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::cli
