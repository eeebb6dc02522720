// Validation and sizes of TensorSpec and GramSpec.
#include "server/tensors/tensor_spec.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "absl/strings/str_format.h"
#include "sparsefw/gram.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

std::string_view NameOf(DType dtype) { return dtype == DType::kBool ? "U1" : DTypeName(dtype); }

absl::Status CheckDType(std::string_view what, DType dtype, std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), dtype) != allowed.end()) return absl::OkStatus();
  std::string list;
  for (const DType one : allowed) {
    list += (list.empty() ? "" : " or ") + std::string(NameOf(one));
  }
  return Invalid("SPEC_INVALID", "%s must be %s; got %s", what, list, NameOf(dtype));
}

absl::Status CheckKind(const TensorSpec& spec) {
  const std::string what = absl::StrFormat("dtype of a %s", NameOf(spec.kind));
  switch (spec.kind) {
    case TensorKind::kWeight:
    case TensorKind::kPrunedWeight:
      return CheckDType(what, spec.dtype, {DType::kF32, DType::kF16, DType::kBF16});
    case TensorKind::kGram:
      return CheckDType(what, spec.dtype, {DType::kF32, DType::kF64});
    case TensorKind::kSaliency:
      return CheckDType(what, spec.dtype, {DType::kF32});
    case TensorKind::kMask:
      return CheckDType(what, spec.dtype, {DType::kBool});
  }
  return Invalid("SPEC_INVALID", "kind must be a known kind; got %d", static_cast<int>(spec.kind));
}

absl::Status CheckDimension(std::string_view name, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return Invalid("SPEC_INVALID", "%s must be at least 1; got %d", name, value);
}

// Nothing beyond int64.
std::optional<int64_t> CheckedByteSize(const TensorSpec& spec) {
  int64_t row = 0;
  int64_t total = 0;
  if (spec.dtype == DType::kBool) {
    row = spec.cols / 8 + (spec.cols % 8 != 0 ? 1 : 0);
  } else if (__builtin_mul_overflow(spec.cols, static_cast<int64_t>(SizeOf(spec.dtype)), &row)) {
    return std::nullopt;
  }
  if (__builtin_mul_overflow(spec.rows, row, &total)) return std::nullopt;
  return total;
}

}  // namespace

std::string_view NameOf(TensorKind kind) {
  constexpr std::string_view kNames[] = {"WEIGHT", "GRAM", "SALIENCY", "MASK", "PRUNED_WEIGHT"};
  static_assert(std::size(kNames) == static_cast<size_t>(TensorKind::kPrunedWeight) + 1);
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

absl::Status ValidateSpec(const TensorSpec& spec) {
  SPARSEFW_RETURN_IF_ERROR(CheckKind(spec));
  SPARSEFW_RETURN_IF_ERROR(CheckDimension("dims[0]", spec.rows));
  SPARSEFW_RETURN_IF_ERROR(CheckDimension("dims[1]", spec.cols));
  if (spec.token_count < 0) {
    return Invalid("SPEC_INVALID", "token_count must be at least 0; got %d", spec.token_count);
  }
  if (spec.token_count > 0 && spec.kind != TensorKind::kGram) {
    return Invalid("SPEC_INVALID", "token_count must be 0 but for a GRAM; got %d for a %s",
                   spec.token_count, NameOf(spec.kind));
  }
  if (spec.kind == TensorKind::kGram && spec.rows != spec.cols) {
    return Invalid("SPEC_INVALID", "a GRAM must be square; got dims [%d, %d]", spec.rows,
                   spec.cols);
  }
  if (!CheckedByteSize(spec)) {
    return Invalid("SPEC_INVALID", "a tensor must be below 2^63 bytes; got dims [%d, %d] of %s",
                   spec.rows, spec.cols, NameOf(spec.dtype));
  }
  return absl::OkStatus();
}

absl::Status ValidateSpec(const GramSpec& spec) {
  SPARSEFW_RETURN_IF_ERROR(CheckDimension("d_in", spec.d_in));
  SPARSEFW_RETURN_IF_ERROR(CheckDType("activation_dtype", spec.activation_dtype,
                                      {DType::kF32, DType::kF16, DType::kBF16}));
  SPARSEFW_RETURN_IF_ERROR(CheckDType("gram_dtype", spec.gram_dtype, {DType::kF32, DType::kF64}));
  if (!GramHostBytes(spec)) {
    return Invalid("SPEC_INVALID", "a Gram matrix must be below 2^63 bytes; got d_in=%d",
                   spec.d_in);
  }
  return absl::OkStatus();
}

int64_t ByteSize(const TensorSpec& spec) { return CheckedByteSize(spec).value_or(0); }

MatrixSpec MatrixSpecOf(const TensorSpec& spec) { return {spec.rows, spec.cols, spec.dtype}; }

TensorSpec ResultSpec(const GramSpec& spec, int64_t token_count) {
  return TensorSpec{TensorKind::kGram, spec.gram_dtype, spec.d_in, spec.d_in, token_count};
}

absl::Status CheckGramRows(std::span<const double> rows, int64_t first_row, int64_t cols,
                           DType dtype) {
  const double limit =
      dtype == DType::kF64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  const auto beyond =
      std::ranges::find_if_not(rows, [limit](double value) { return std::abs(value) <= limit; });
  if (beyond == rows.end()) return absl::OkStatus();
  const int64_t at = beyond - rows.begin();
  return Invalid("NON_FINITE",
                 "a Gram matrix must be finite in its gram_dtype; got %g at [%d, %d], at most %g "
                 "fits",
                 *beyond, first_row + at / cols, at % cols, limit);
}

std::optional<int64_t> GramHostBytes(const GramSpec& spec) {
  const auto sums = CheckedByteSize({TensorKind::kGram, DType::kF64, spec.d_in, spec.d_in, 0});
  const auto result = CheckedByteSize(ResultSpec(spec, 0));
  const auto block =
      CheckedByteSize({TensorKind::kGram, DType::kF32, kGramBlockTokens, spec.d_in, 0});
  int64_t total = 0;
  if (!sums || !result || !block || __builtin_add_overflow(*sums, *result, &total) ||
      __builtin_add_overflow(total, *block, &total)) {
    return std::nullopt;
  }
  return total;
}

}  // namespace sparsefw::server
