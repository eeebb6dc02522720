// `gram`: activations up, their Gram matrix down.

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/files/calibration.h"
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
  IgnoreClosedPipes();
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<Input> batches, LoadActivations(options.activations));
  for (const Input& batch : batches) {
    if (!SameFile(options.out, batch.path)) continue;
    return UsageError(absl::StrFormat("--out: %s is an input and would be lost", options.out));
  }
  const int64_t inputs = batches[0].cols;
  const std::string label = LabelOf(batches);
  SPARSEFW_RETURN_IF_ERROR(CheckWritable("--out", options.out, options.overwrite));
  std::stop_source stop;
  const Interrupt interrupt([&stop](int) { stop.request_stop(); });
  const client::CallOptions call{stop.get_token()};
  ProgressDisplay display(console, absl::Now, options.common.quiet);
  const auto connected = Connect(options.common, display, call.stop);
  if (!connected.ok()) return Failed(connected.status());
  const auto& client = *connected;
  const auto on_transfer = [&display](const client::TransferProgress& progress) {
    display.OnTransfer(progress);
  };

  for (const std::string& warning : WarningsOf(batches)) display.Note("sparsefw-cli: " + warning);
  display.StartTransfer("uploading", label);
  const auto gram =
      client->UploadGramFromBatches(client::ActivationSpec(batches[0].dtype, inputs, options.dtype),
                                    BytesOf(batches), on_transfer, call);
  if (!gram.ok()) return Failed(About(label, gram.status()));
  display.EndTransfer();
  // Its name, should the rest fail.
  if (options.keep_tensors) display.Note("kept " + gram->name());
  display.StartTransfer("downloading", options.out);
  const absl::Status status = WithinMemory(OutOfMemory(options.out), [&]() -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(const client::TensorData data,
                              client->ReadTensor(gram->name(), on_transfer, call,
                                                 client::GramTensorSpec(options.dtype, inputs)));
    display.EndTransfer();
    return Write(options, data, label);
  });
  if (!options.keep_tensors) DeleteTensors(*client, {gram->name()}, display);
  if (!status.ok()) return Failed(status);

  const int64_t tokens = gram->spec().token_count();
  if (options.common.json) {
    using Json = nlohmann::ordered_json;
    console.out << JsonText(
        Json{{"gram", options.out},
             {"tensor", options.keep_tensors ? Json(gram->name()) : Json(nullptr)},
             {"d_in", inputs},
             {"dtype", std::string(DTypeName(options.dtype))},
             {"token_count", tokens}});
  } else {
    const std::string kept = options.keep_tensors ? ", kept as " + gram->name() : "";
    console.out << client::Printable(absl::StrFormat("%s  Gram [%d, %d] %s of %d tokens%s",
                                                     options.out, inputs, inputs,
                                                     DTypeName(options.dtype), tokens, kept))
                << "\n";
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::cli
