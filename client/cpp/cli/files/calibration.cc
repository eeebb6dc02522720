#include "client/cpp/cli/files/calibration.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "sparsefw/dtype.h"

namespace sparsefw::cli {
namespace {

std::string FewTokens(const std::string& label, int64_t tokens, int64_t inputs) {
  return absl::StrFormat(
      "warning: %s: %d tokens are fewer than the %d inputs, so the mask fits these tokens better "
      "than others; take more tokens (--shrinkage 0.1 makes up for some of it, and the presets "
      "balanced and best have one)",
      label, tokens, inputs);
}

constexpr std::string_view kOnlyZeros =
    "so every mask loses nothing and none is better than another; look at where the activations "
    "are taken from";

bool OnlyZeros(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte(); });
}

bool DiagonalIsZero(const Input& gram) {
  const size_t size = SizeOf(gram.dtype);
  const size_t step = (static_cast<size_t>(gram.cols) + 1) * size;
  for (size_t at = 0; at < gram.bytes.size(); at += step) {
    double value = 0;
    ConvertToDouble(gram.bytes.data() + at, gram.dtype, 1, &value);
    if (value != 0) return false;
  }
  return true;
}

// tr(G)^2 / |G|^2, which is at most the rank of G: that of a sum over T tokens is at most T.
double RankAtLeast(const Input& gram) {
  const auto n = static_cast<size_t>(gram.cols);
  const size_t row_bytes = n * SizeOf(gram.dtype);
  std::vector<double> row(n);
  double trace = 0;
  double squares = 0;
  for (size_t i = 0; i < n; ++i) {
    ConvertToDouble(gram.bytes.data() + i * row_bytes, gram.dtype, n, row.data());
    trace += row[i];
    squares = std::inner_product(row.begin(), row.end(), row.begin(), squares);
  }
  return squares > 0 ? trace * trace / squares : 0;
}

}  // namespace

std::vector<std::span<const std::byte>> BytesOf(std::span<const Input> batches) {
  std::vector<std::span<const std::byte>> bytes;
  for (const Input& batch : batches) bytes.push_back(batch.bytes);
  return bytes;
}

int64_t TokensOf(std::span<const Input> batches) {
  return std::accumulate(batches.begin(), batches.end(), int64_t{0},
                         [](int64_t sum, const Input& batch) { return sum + batch.rows; });
}

std::string LabelOf(std::span<const Input> batches) {
  if (batches.size() == 1) return batches[0].label;
  return absl::StrFormat("%s and %d more", batches[0].label, batches.size() - 1);
}

int64_t TokenCount(const Input& gram) {
  const auto found = gram.metadata.find("token_count");
  int64_t tokens = 0;
  if (found == gram.metadata.end() || !absl::SimpleAtoi(found->second, &tokens)) return 0;
  return std::max<int64_t>(tokens, 0);
}

absl::Status CheckActivations(const Input& activations, const Input& weight) {
  if (activations.cols == weight.cols) return absl::OkStatus();
  return FileError(absl::StrFormat(
      "%s: activations must be [tokens, %d] to fit %s, which is [%d, %d]; got [%d, %d]%s",
      activations.label, weight.cols, weight.label, weight.rows, weight.cols, activations.rows,
      activations.cols,
      activations.rows == weight.cols ? ", which looks transposed: save x.T" : ""));
}

absl::Status CheckGram(const Input& gram, const Input& weight) {
  const int64_t inputs = weight.cols;
  if (gram.rows == inputs && gram.cols == inputs) return absl::OkStatus();
  const char* hint = "";
  if (gram.rows == gram.cols) {
    hint = "; of activations x [tokens, d_in] it is x.T @ x, not x @ x.T";
  } else if (gram.cols == inputs) {
    hint = "; these may be activations: --activations";
  } else if (gram.rows == inputs) {
    hint = "; these may be activations, transposed: save x.T, and give it as --activations";
  }
  return FileError(absl::StrFormat(
      "%s: the Gram matrix must be [%d, %d] to fit %s, which is [%d, %d]; got [%d, %d]%s",
      gram.label, inputs, inputs, weight.label, weight.rows, weight.cols, gram.rows, gram.cols,
      hint));
}

std::vector<std::string> WarningsOf(std::span<const Input> batches) {
  std::vector<std::string> warnings;
  const int64_t inputs = batches[0].cols;
  for (const Input& batch : batches) {
    if (batch.rows != inputs) continue;
    warnings.push_back(
        absl::StrFormat("warning: %s is square: rows are taken for tokens and columns for inputs, "
                        "whatever is meant",
                        batch.label));
  }
  if (std::ranges::all_of(batches, [](const Input& batch) { return OnlyZeros(batch.bytes); })) {
    warnings.push_back(
        absl::StrFormat("warning: %s: only zeros, %s", LabelOf(batches), kOnlyZeros));
  }
  const int64_t tokens = TokensOf(batches);
  if (tokens < inputs) warnings.push_back(FewTokens(LabelOf(batches), tokens, inputs));
  return warnings;
}

std::vector<std::string> WarningsOfGram(const Input& gram) {
  if (DiagonalIsZero(gram)) {
    return {absl::StrFormat("warning: %s: the diagonal is zero, %s", gram.label, kOnlyZeros)};
  }
  const int64_t tokens = TokenCount(gram);
  if (tokens == 0 || tokens >= gram.cols) return {};
  std::vector<std::string> warnings = {FewTokens(gram.label, tokens, gram.cols)};
  // Rounding to float32 may add a little to the rank.
  if (const double rank = RankAtLeast(gram); rank > 1.01 * static_cast<double>(tokens)) {
    warnings.push_back(absl::StrFormat(
        "warning: %s: the rank is at least %.0f, that of a sum over %d tokens at most %d; of "
        "activations x [tokens, d_in] the Gram matrix is x.T @ x, not x @ x.T",
        gram.label, rank, tokens, tokens));
  }
  return warnings;
}

}  // namespace sparsefw::cli
