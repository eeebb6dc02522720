#include "client/cpp/cli/session.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cpp/cli/credentials.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/output/result.h"
#include "client/cpp/cli/output/result_text.h"
#include "sparsefw/client/error.h"
#include "sparsefw/mask.h"
#include "sparsefw/reason.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

absl::StatusOr<client::TensorData> Download(client::Client& client, const std::string& tensor,
                                            const v1::TensorSpec& expected, const std::string& file,
                                            ProgressDisplay& display,
                                            const client::CallOptions& call) {
  display.StartTransfer("downloading", file);
  auto data = client.ReadTensor(
      tensor,
      [&display](const client::TransferProgress& progress) { display.OnTransfer(progress); }, call,
      expected);
  if (data.ok()) display.EndTransfer();
  return data;
}

absl::Status BadAnswer(const v1::Job& job, std::string_view rule, std::string_view got) {
  return Refuse(absl::StatusCode::kInternal, "PROTOCOL", "%s: must have %s; the server says %s",
                job.name(), rule, got);
}

// A local file that cannot be written loses nothing: the server keeps the result.
absl::Status Written(const absl::Status& status, const v1::Job& job) {
  if (status.ok()) return status;
  return FileError(client::WithMessage(
      status, absl::StrFormat("%s; the result is still on the server: sparsefw-cli fetch %s "
                              "--out FILE",
                              std::string(status.message()), job.name())));
}

// A mask as a file of safetensors holds it: a byte for every weight.
struct BoolMask {
  std::string name;
  std::vector<int64_t> dims;
  std::vector<std::byte> values;
};

// The most points of a sweep.
constexpr int kMostPoints = 256;

absl::StatusOr<BoolMask> Unpack(const v1::Job& job, std::string name, int64_t kept_count,
                                const client::TensorData& data) {
  const int64_t rows = data.tensor.spec().dims(0);
  const int64_t cols = data.tensor.spec().dims(1);
  SPARSEFW_ASSIGN_OR_RETURN(const Mask mask, Mask::FromBytes(rows, cols, data.bytes));
  if (mask.CountKept() != kept_count) {
    return absl::InternalError(
        absl::StrFormat("%s: the server's mask keeps %d weights, not the %d "
                        "that it reports",
                        job.name(), mask.CountKept(), kept_count));
  }
  std::vector<std::byte> bools(static_cast<size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      bools[static_cast<size_t>(row * cols + col)] = std::byte{mask.Get(row, col)};
    }
  }
  return BoolMask{std::move(name), {rows, cols}, std::move(bools)};
}

// `mask`, and of a sweep that kept them all `mask.<point>` as well.
absl::Status WriteMasks(client::Client& client, const v1::Job& job, const std::string& path,
                        ProgressDisplay& display, const client::CallOptions& call) {
  if (job.result().sweep_size() > kMostPoints) {
    return BadAnswer(job, absl::StrFormat("at most %d points", kMostPoints),
                     absl::StrFormat("%d", job.result().sweep_size()));
  }
  const v1::TensorSpec expected = client::MaskSpec(job.shape(0), job.shape(1));
  std::vector<BoolMask> masks;
  const auto add = [&](std::string name, const v1::JobResult& result) -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(const client::TensorData data,
                              Download(client, result.mask(), expected, path, display, call));
    SPARSEFW_ASSIGN_OR_RETURN(BoolMask mask,
                              Unpack(job, std::move(name), result.kept_count(), data));
    masks.push_back(std::move(mask));
    return absl::OkStatus();
  };
  SPARSEFW_RETURN_IF_ERROR(add("mask", job.result()));
  for (int index = 0; index < job.result().sweep_size(); ++index) {
    const v1::JobResult& point = job.result().sweep(index).result();
    if (point.mask().empty() || job.spec().sweep().keep() != v1::Sweep::KEEP_ALL) continue;
    SPARSEFW_RETURN_IF_ERROR(add(absl::StrFormat("mask.%d", index), point));
  }
  std::vector<SafetensorsTensor> tensors;
  for (const BoolMask& mask : masks) {
    tensors.push_back({mask.name, DType::kBool, mask.dims, mask.values});
  }
  return Written(WriteSafetensors(path, tensors, ResultMetadata(job)), job);
}

absl::Status WritePruned(client::Client& client, const v1::Job& job, const std::string& path,
                         ProgressDisplay& display, const client::CallOptions& call) {
  v1::TensorSpec expected;
  expected.set_kind(v1::TENSOR_KIND_PRUNED_WEIGHT);
  *expected.mutable_dims() = job.shape();
  SPARSEFW_ASSIGN_OR_RETURN(
      const client::TensorData data,
      Download(client, job.result().pruned_weight(), expected, path, display, call));
  const auto dtype = client::FromProto(data.tensor.spec().dtype());
  if (!dtype) return absl::InternalError(job.name() + ": the pruned weight has no dtype");
  const auto& labels = job.spec().labels();
  const auto label = labels.find(kWeightNameLabel);
  const auto& dims = data.tensor.spec().dims();
  const SafetensorsTensor tensor{label == labels.end() ? "weight" : label->second, *dtype,
                                 std::vector<int64_t>(dims.begin(), dims.end()), data.bytes};
  return Written(WriteSafetensors(path, std::span(&tensor, 1), ResultMetadata(job)), job);
}

}  // namespace

absl::StatusOr<std::unique_ptr<client::Client>> Connect(const CommonOptions& common,
                                                        ProgressDisplay& display,
                                                        std::stop_token stop) {
  client::ClientOptions options;
  options.connect_stop = std::move(stop);
  options.on_retry = [&display](const absl::Status& error, absl::Duration wait) {
    // The first, short waits are not worth a message.
    if (wait < absl::Milliseconds(500)) return;
    display.Note(absl::StrFormat("sparsefw-cli: %s; trying again", std::string(error.message())));
  };
  SPARSEFW_RETURN_IF_ERROR(AddCredentials(common, &options));
  options.traceparent = common.traceparent;
  options.connect_timeout = common.timeout;
  options.retry.give_up_after = common.retry_for;
  options.owner = "sparsefw-cli";
  auto client = client::Client::Connect(common.server, std::move(options));
  // An address that is none and a token that would travel in plain text are wrong flags.
  if (!client.ok()) return MarkRefusedOptions(client.status());
  return client;
}

absl::Status CheckJobShape(const v1::Job& job, int64_t rows, int64_t cols) {
  if (job.shape_size() == 2 && job.shape(0) == rows && job.shape(1) == cols) {
    return absl::OkStatus();
  }
  return BadAnswer(job, absl::StrFormat("the layer's shape [%d, %d]", rows, cols),
                   absl::StrFormat("[%s]", absl::StrJoin(job.shape(), ", ")));
}

absl::Status About(std::string_view what, const absl::Status& status) {
  if (status.ok()) return status;
  return client::WithMessage(status,
                             absl::StrFormat("%s: %s", what, std::string(status.message())));
}

void DeleteTensors(client::Client& client, const std::vector<std::string>& names,
                   ProgressDisplay& display) {
  // The results are here; a server that has gone meanwhile is not waited for.
  client::CallOptions once;
  once.retry = false;
  for (const std::string& name : names) {
    const absl::Status status = client.DeleteTensor(name, once);
    if (status.ok() || absl::IsNotFound(status)) continue;
    display.Note(absl::StrFormat("sparsefw-cli: %s could not be deleted: %s", name,
                                 std::string(status.message())));
  }
}

void DeleteInputs(client::Client& client, const v1::Job& job, ProgressDisplay& display) {
  const v1::JobSpec& spec = job.spec();
  std::vector<std::string> names;
  if (const auto some = spec.labels().find(kUploadedLabel); some != spec.labels().end()) {
    names = absl::StrSplit(some->second, ' ', absl::SkipEmpty());
    return DeleteTensors(client, names, display);
  }
  if (!spec.labels().contains(kInputsLabel)) return;
  for (const std::string& name :
       {spec.weight(), spec.gram(), spec.warm_start().mask(), spec.warm_start().saliency()}) {
    if (!name.empty()) names.push_back(name);
  }
  DeleteTensors(client, names, display);
}

void NoteWeightsWithoutFile(const v1::Job& job, const OutputOptions& output,
                            ProgressDisplay& display) {
  const std::string warning = WeightsWithoutFile(job, output);
  if (!warning.empty()) display.Note("sparsefw-cli: " + warning);
}

absl::Status WriteOutputs(client::Client& client, const v1::Job& job, const OutputOptions& output,
                          ProgressDisplay& display, const client::CallOptions& call) {
  if (job.shape_size() != 2) {
    return BadAnswer(job, "two dims", absl::StrFormat("[%s]", absl::StrJoin(job.shape(), ", ")));
  }
  const auto write = [&](const char* flag, const std::string& path,
                         const auto& writer) -> absl::Status {
    if (path.empty()) return absl::OkStatus();
    // Another program may have written there meanwhile.
    SPARSEFW_RETURN_IF_ERROR(Written(CheckWritable(flag, path, output.overwrite), job));
    return WithinMemory(Written(OutOfMemory(path), job),
                        [&] { return writer(client, job, path, display, call); });
  };
  SPARSEFW_RETURN_IF_ERROR(write("--out", output.out, WriteMasks));
  return write("--out-weights", output.out_weights, WritePruned);
}

}  // namespace sparsefw::cli
