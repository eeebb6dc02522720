#include "server/rpc/calls/sum_grams.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "server/rpc/calls/tenant_view.h"
#include "server/rpc/convert/convert.h"
#include "server/tensors/spec.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int kMaxParts = 256;
constexpr int64_t kBlockRows = 64;

using Part = std::shared_ptr<const TensorHandle>;

absl::StatusOr<std::vector<Part>> OpenParts(RpcContext& context, const Owner& owner,
                                            const v1::SumGramsRequest& request) {
  if (request.grams_size() < 1 || request.grams_size() > kMaxParts) {
    return Invalid("SPEC_INVALID", "grams must be 1 to %d tensors; got %d", kMaxParts,
                   request.grams_size());
  }
  std::set<std::string_view> names;
  std::vector<Part> parts;
  for (const std::string& name : request.grams()) {
    SPARSEFW_ASSIGN_OR_RETURN(
        Part part, WithTensor(*context.tensors, owner.tenant, name, [&](std::string_view key) {
          return context.tensors->OpenForReading(key);
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

absl::StatusOr<TensorSpec> SpecOfSum(const std::vector<Part>& parts, v1::DType dtype) {
  v1::GramSpec proto;
  proto.set_d_in(parts.front()->info().spec.cols);
  proto.set_activation_dtype(v1::F32);
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

// The sum of finite parts can be beyond the dtype, and parts are only checked by jobs.
absl::Status CheckRange(std::span<const double> sum, int64_t first_row, int64_t cols,
                        double limit) {
  const auto beyond =
      std::ranges::find_if_not(sum, [limit](double value) { return std::abs(value) <= limit; });
  if (beyond == sum.end()) return absl::OkStatus();
  const int64_t at = beyond - sum.begin();
  return Invalid("NON_FINITE",
                 "the sum of Gram matrices must be finite in its gram_dtype; got %g at [%d, %d], "
                 "at most %g fits",
                 *beyond, first_row + at / cols, at % cols, limit);
}

absl::Status WriteSum(TensorStore& store, const std::string& upload, const std::vector<Part>& parts,
                      const TensorSpec& spec) {
  const bool wide = spec.dtype == TensorDType::kF64;
  const double limit =
      wide ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  std::vector<double> sum;
  std::vector<float> narrow;
  for (int64_t row = 0; row < spec.rows; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, spec.rows - row);
    sum.resize(static_cast<size_t>(rows * spec.cols));
    SumRows(parts, row, sum);
    SPARSEFW_RETURN_IF_ERROR(CheckRange(sum, row, spec.cols, limit));
    std::span<const std::byte> bytes = std::as_bytes(std::span(sum));
    if (!wide) {
      narrow.assign(sum.begin(), sum.end());
      bytes = std::as_bytes(std::span(narrow));
    }
    const int64_t offset = row * spec.cols * ElementBytes(spec.dtype);
    SPARSEFW_RETURN_IF_ERROR(store.Write(upload, offset, bytes, Crc32c(bytes)).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorInfo> MakeSum(TensorStore& store, const std::string& upload,
                                   const std::vector<Part>& parts, const TensorSpec& spec) {
  try {
    SPARSEFW_RETURN_IF_ERROR(WriteSum(store, upload, parts, spec));
  } catch (const std::bad_alloc&) {
    return Refuse(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                  "%d rows of %d values must fit into host memory; they do not", kBlockRows,
                  spec.cols);
  }
  return store.Finish(upload, std::nullopt);
}

}  // namespace

absl::StatusOr<v1::Tensor> SumGramsIn(RpcContext& context, const Owner& owner,
                                      const v1::SumGramsRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(context.registry->Admit());
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(request.owner()));
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<Part> parts, OpenParts(context, owner, request));
  SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, SpecOfSum(parts, request.gram_dtype()));
  TensorStore& store = *context.tensors;
  SPARSEFW_ASSIGN_OR_RETURN(const auto made, store.CreateUpload(spec, request.request_id(), owner));
  // Of this request_id there is the sum already.
  if (const auto* tensor = std::get_if<TensorInfo>(&made)) return ToProto(*tensor);
  const std::string& upload = std::get<UploadInfo>(made).name;
  absl::StatusOr<TensorInfo> sum = MakeSum(store, upload, parts, spec);
  if (!sum.ok()) {
    // A repeated call begins anew: the parts may be others by then.
    store.DeleteUpload(upload).IgnoreError();
    return std::move(sum).status();
  }
  return ToProto(*sum);
}

}  // namespace sparsefw::server
