#include "server/rpc/tensors/sum_grams.h"

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/rpc/runtime/tenant_view.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int kMaxParts = 256;
constexpr int64_t kMaxBlockRows = 64;
constexpr int64_t kBlockBytes = int64_t{8} << 20;  // of the parts

using Part = std::shared_ptr<const TensorHandle>;

absl::StatusOr<std::vector<Part>> OpenParts(RpcContext& context, const Owner& owner,
                                            const v1::SumGramsRequest& request,
                                            const StopSignal& stop) {
  if (request.grams_size() < 1 || request.grams_size() > kMaxParts) {
    return Invalid("SPEC_INVALID", "grams must be 1 to %d tensors; got %d", kMaxParts,
                   request.grams_size());
  }
  std::set<std::string_view> names;
  std::vector<Part> parts;
  for (const std::string& name : request.grams()) {
    SPARSEFW_ASSIGN_OR_RETURN(
        Part part, WithTensor(*context.tensors, owner.tenant, name, [&](std::string_view key) {
          return context.tensors->OpenForReading(key, &stop);
        }));
    if (!names.insert(name).second) {
      return Invalid("SPEC_INVALID", "grams must name a tensor once; got %s twice", name);
    }
    const TensorSpec& spec = part->info().spec;
    if (spec.kind != TensorKind::kGram) {
      return Invalid("WRONG_TENSOR_KIND", "grams must be tensors of kind GRAM; got %s, a %s", name,
                     NameOf(spec.kind));
    }
    const int64_t d_in = parts.empty() ? spec.cols : parts.front()->info().spec.cols;
    if (spec.cols != d_in) {
      return Invalid("SHAPE_MISMATCH", "grams must be [%d, %d] as the first; got %s, [%d, %d]",
                     d_in, d_in, name, spec.rows, spec.cols);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

absl::StatusOr<TensorSpec> SpecOfSum(const std::vector<Part>& parts, v1::DataType dtype) {
  v1::GramSpec proto;
  proto.set_d_in(parts.front()->info().spec.cols);
  proto.set_activation_dtype(v1::DATA_TYPE_F32);
  proto.set_gram_dtype(dtype);
  SPARSEFW_ASSIGN_OR_RETURN(const GramSpec spec, FromProto(proto));
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  int64_t tokens = 0;
  for (const Part& part : parts) {
    const int64_t more = part->info().spec.token_count;
    if (more == 0 || more > std::numeric_limits<int64_t>::max() - tokens) {
      tokens = 0;
      break;
    }
    tokens += more;
  }
  return ResultSpec(spec, tokens);
}

template <typename T>
void AddTo(std::span<double> sum, const T* values) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
}

// Rows [first, first + count) of the sum, which are `sum.size()` values.
void SumRows(const std::vector<Part>& parts, int64_t first, std::span<double> sum) {
  std::ranges::fill(sum, 0.0);
  for (const Part& part : parts) {
    const ConstMatrixView matrix = part->matrix();
    if (matrix.dtype() == DType::kF64) {
      AddTo(sum, matrix.row<double>(first));
    } else {
      AddTo(sum, matrix.row<float>(first));
    }
  }
}

// A block of this many rows of all parts takes a few milliseconds.
int64_t RowsAtOnce(const std::vector<Part>& parts) {
  const ConstMatrixView matrix = parts.front()->matrix();
  const int64_t row_bytes = std::ssize(parts) * matrix.cols() * SizeOf(matrix.dtype());
  return std::clamp(kBlockBytes / row_bytes, int64_t{1}, kMaxBlockRows);
}

}  // namespace

GramSum::GramSum(RpcContext& context, v1::SumGramsRequest request)
    : context_(context), request_(std::move(request)) {}

GramSum::~GramSum() { Leave(true); }

GramSum::Result GramSum::Step(const std::string& tenant, const StopSignal& stop) {
  Result result = TryStep({tenant, request_.owner()}, stop);
  // Leaves before the client hears of the error.
  if (result.has_value() && !result->ok()) Leave(true);
  return result;
}

GramSum::Result GramSum::TryStep(const Owner& owner, const StopSignal& stop) {
  if (!upload_.has_value()) {
    absl::StatusOr<std::optional<TensorInfo>> made = Begin(owner, stop);
    if (!made.ok()) return std::move(made).status();
    // The sum of this request is there already.
    if (made->has_value()) return ToProto(**made);
  }
  if (row_ < upload_->spec.rows) {
    const absl::Status summed = SumBlock();
    if (absl::IsNotFound(summed)) {
      row_ = upload_->spec.rows;  // another call of the same request has finished it
    } else if (!summed.ok()) {
      return summed;
    }
    if (row_ < upload_->spec.rows) return std::nullopt;
  }
  const absl::StatusOr<TensorInfo> sum = context_.tensors->Finish(upload_->name, std::nullopt);
  if (!sum.ok() && !absl::IsNotFound(sum.status())) return sum.status();
  Leave(false);
  if (sum.ok()) return ToProto(*sum);
  // The last call that failed has deleted it just as this one came: begin anew.
  return std::nullopt;
}

absl::StatusOr<std::optional<TensorInfo>> GramSum::Begin(const Owner& owner,
                                                         const StopSignal& stop) {
  SPARSEFW_RETURN_IF_ERROR(context_.registry->Admit());
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(request_.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(request_.owner()));
  SPARSEFW_ASSIGN_OR_RETURN(parts_, OpenParts(context_, owner, request_, stop));
  SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, SpecOfSum(parts_, request_.gram_dtype()));
  SPARSEFW_ASSIGN_OR_RETURN(
      const auto made, context_.tensors->CreateUpload(spec, request_.request_id(), owner,
                                                      UploadLife::kStream, DigestOf(request_)));
  if (const auto* tensor = std::get_if<TensorInfo>(&made)) return *tensor;
  upload_ = std::get<UploadInfo>(made);
  context_.sums.Enter(upload_->name);
  row_ = upload_->committed_size / (spec.cols * static_cast<int64_t>(SizeOf(spec.dtype)));
  return std::nullopt;
}

// Calls of the same request write one upload: each goes on where it stands by now, with the
// bytes that any of them would write.
absl::Status GramSum::SumBlock() {
  const TensorSpec& spec = upload_->spec;
  const int64_t row_bytes = spec.cols * static_cast<int64_t>(SizeOf(spec.dtype));
  const int64_t rows = std::min(RowsAtOnce(parts_), spec.rows - row_);
  sum_.resize(static_cast<size_t>(rows * spec.cols));
  SumRows(parts_, row_, sum_);
  SPARSEFW_RETURN_IF_ERROR(CheckGramRows(sum_, row_, spec.cols, spec.dtype));
  std::span<const std::byte> bytes = std::as_bytes(std::span(sum_));
  if (spec.dtype != DType::kF64) {
    narrow_.assign(sum_.begin(), sum_.end());
    bytes = std::as_bytes(std::span(narrow_));
  }
  SPARSEFW_ASSIGN_OR_RETURN(
      const int64_t written,
      context_.tensors->Write(upload_->name, row_ * row_bytes, bytes, Crc32c(bytes)));
  row_ = written / row_bytes;
  return absl::OkStatus();
}

void GramSum::Leave(bool abandon) {
  if (!upload_.has_value()) return;
  const std::string name = std::exchange(upload_, std::nullopt)->name;
  const bool last = context_.sums.Leave(name);
  // It may be gone already.
  if (last && abandon) context_.tensors->DeleteUpload(name).IgnoreError();
}

}  // namespace sparsefw::server
