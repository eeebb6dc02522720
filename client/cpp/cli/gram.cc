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
#include "sparsefw/client/error.h"
#include "sparsefw/client/printable.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Write(const GramOptions& options, const client::TensorData& gram,
                   const std::string& source) {
  const auto& dims = gram.tensor.spec().dims();
  const SafetensorsTensor tensor{"gram", options.dtype,
                                 std::vector<int64_t>(dims.begin(), dims.end()), gram.bytes};
  return FileError(WriteSafetensors(
      options.out, std::span(&tensor, 1),
      {{"token_count", std::to_string(gram.tensor.spec().token_count())}, {"source", source}}));
}

// A server that shuts down may say CANCELLED, too.
absl::Status Failed(const absl::Status& status, const client::CallOptions& call) {
  if (!absl::IsCancelled(status) || !call.stop.stop_requested()) return status;
  return WithExitCode(absl::CancelledError("cancelled before the Gram matrix was written"),
                      ExitCode::kNoMask);
}

void Print(const GramOptions& options, const v1::Tensor& gram, int64_t inputs,
           const Console& console) {
  const int64_t tokens = gram.spec().token_count();
  if (options.common.json) {
    console.out << JsonText(
        Json{{"gram", options.out},
             {"tensor", options.keep_tensors ? Json(gram.name()) : Json(nullptr)},
             {"d_in", inputs},
             {"dtype", std::string(DTypeName(options.dtype))},
             {"token_count", tokens}});
    return;
  }
  const std::string kept = options.keep_tensors ? ", kept as " + gram.name() : "";
  console.out << client::Printable(absl::StrFormat("%s  Gram [%d, %d] %s of %d tokens%s",
                                                   options.out, inputs, inputs,
                                                   DTypeName(options.dtype), tokens, kept))
              << "\n";
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
  if (!connected.ok()) return Failed(connected.status(), call);
  const auto& client = *connected;
  const auto on_transfer = [&display](const client::TransferProgress& progress) {
    display.OnTransfer(progress);
  };

  for (const std::string& warning : WarningsOf(batches)) display.Note("sparsefw-cli: " + warning);
  display.StartTransfer("uploading", label);
  const auto gram =
      client->UploadGramFromBatches(client::ActivationSpec(batches[0].dtype, inputs, options.dtype),
                                    BytesOf(batches), on_transfer, call);
  if (!gram.ok()) return Failed(About(label, gram.status()), call);
  display.EndTransfer();
  // Its name, should the rest fail.
  if (options.keep_tensors) display.Note("kept " + gram->name());
  display.StartTransfer("downloading", options.out);
  const absl::Status status = WithinMemory(OutOfMemory(options.out), [&]() -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(const client::TensorData data,
                              client->ReadTensor(gram->name(), on_transfer, call,
                                                 client::GramTensorSpec(options.dtype, inputs)));
    display.EndTransfer();
    // Another program may have written there meanwhile.
    SPARSEFW_RETURN_IF_ERROR(CheckWritable("--out", options.out, options.overwrite));
    return Write(options, data, client::Printable(label));
  });
  const bool lost = !status.ok() && !call.stop.stop_requested();
  if (!options.keep_tensors && !lost) DeleteTensors(*client, {gram->name()}, display);
  if (lost) {
    return client::WithMessage(status,
                               absl::StrFormat("%s; the Gram matrix is still on the server: %s",
                                               std::string(status.message()), gram->name()));
  }
  if (!status.ok()) return Failed(status, call);

  Print(options, *gram, inputs, console);
  return absl::OkStatus();
}

}  // namespace sparsefw::cli
