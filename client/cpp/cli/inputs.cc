#include "client/cpp/cli/inputs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/files/tensor_file.h"
#include "sparsefw/mask.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

bool Exists(std::string_view path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::path(path), error);
}

FileRef Cut(std::string_view text, size_t colon) {
  return FileRef{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrFormat("[%s]", absl::StrJoin(shape, ", "));
}

// The server takes no float64. It computes with float32, so this loses nothing that it would use.
void NarrowToFloat(Input& input) {
  const auto count = static_cast<size_t>(input.rows * input.cols);
  const auto values = std::make_shared<std::vector<float>>(count);
  ConvertToFloat(input.bytes.data(), DType::kF64, count, values->data());
  input.dtype = DType::kF32;
  input.bytes = std::as_bytes(std::span<const float>(*values));
  input.file = values;
}

absl::StatusOr<Input> LoadFile(const FileRef& ref, std::span<const DType> allowed, bool flatten) {
  SPARSEFW_ASSIGN_OR_RETURN(FileTensor tensor, OpenTensor(ref.path, ref.tensor));
  Input input;
  input.path = ref.path;
  input.tensor = tensor.name;
  input.label = ref.tensor.empty() ? ref.path : absl::StrFormat("%s:%s", ref.path, tensor.name);
  const auto allows = [allowed](DType dtype) {
    return std::find(allowed.begin(), allowed.end(), dtype) != allowed.end();
  };
  const auto dtype = ParseDType(tensor.dtype_name);
  const bool narrow = dtype == DType::kF64 && !allows(DType::kF64) && allows(DType::kF32);
  if (!dtype || !(allows(*dtype) || narrow)) {
    std::vector<std::string> names;
    for (const DType each : allowed) names.emplace_back(DTypeName(each));
    return FileError(absl::StrFormat("%s: dtype must be %s; got %s", input.label,
                                     absl::StrJoin(names, " or "), tensor.dtype_name));
  }
  const std::vector<int64_t>& shape = tensor.shape;
  const bool fits = flatten ? shape.size() >= 2 : shape.size() == 2;
  if (!fits || std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return FileError(absl::StrFormat("%s: must have two dimensions%s of at least 1; got shape %s",
                                     input.label, flatten ? " or more" : "", Shape(shape)));
  }
  input.dtype = *dtype;
  input.cols = shape.back();
  input.rows = std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<>());
  input.bytes = tensor.bytes;
  input.metadata = std::move(tensor.metadata);
  input.file = std::move(tensor.file);
  if (narrow) NarrowToFloat(input);
  return input;
}

// `flatten`: all dimensions but the last are tokens.
absl::StatusOr<Input> Load(std::string_view text, std::span<const DType> allowed, bool flatten) {
  const FileRef ref = ParseFileRef(text);
  return WithinMemory(OutOfMemory(ref.path), [&] { return LoadFile(ref, allowed, flatten); });
}

absl::StatusOr<std::vector<std::byte>> Packed(const Input& input) {
  Mask mask(input.rows, input.cols);
  for (int64_t row = 0; row < input.rows; ++row) {
    for (int64_t col = 0; col < input.cols; ++col) {
      const std::byte value = input.bytes[static_cast<size_t>(row * input.cols + col)];
      if (value > std::byte{1}) {
        return FileError(absl::StrFormat("%s: a BOOL must be 0 or 1; got %d at [%d, %d]",
                                         input.label, static_cast<int>(value), row, col));
      }
      mask.Set(row, col, value == std::byte{1});
    }
  }
  return std::vector<std::byte>(mask.bytes().begin(), mask.bytes().end());
}

}  // namespace

FileRef ParseFileRef(std::string_view text) {
  if (Exists(text)) return FileRef{std::string(text), ""};
  for (size_t colon = text.rfind(':'); colon != std::string_view::npos && colon > 0;
       colon = text.rfind(':', colon - 1)) {
    if (Exists(text.substr(0, colon))) return Cut(text, colon);
  }
  const size_t last = text.rfind(':');
  if (last == std::string_view::npos || last == 0) return FileRef{std::string(text), ""};
  return Cut(text, last);
}

bool IsTensorName(std::string_view text) {
  constexpr std::string_view kFolder = "tensors/";
  if (!text.starts_with(kFolder) || Exists(text)) return false;
  const std::string_view id = text.substr(kFolder.size());
  return !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  });
}

absl::StatusOr<Input> LoadInput(std::string_view text, std::span<const DType> allowed) {
  return Load(text, allowed, /*flatten=*/false);
}

absl::StatusOr<std::vector<Input>> LoadActivations(const std::vector<std::string>& texts) {
  constexpr std::array kFloats = {DType::kF32, DType::kF16, DType::kBF16};
  std::vector<Input> inputs;
  for (const std::string& text : texts) {
    if (std::count(texts.begin(), texts.end(), text) > 1) {
      return UsageError(absl::StrFormat("--activations: %s is given twice", text));
    }
    SPARSEFW_ASSIGN_OR_RETURN(Input input, Load(text, kFloats, /*flatten=*/true));
    const Input& first = inputs.empty() ? input : inputs.front();
    if (input.cols != first.cols || input.dtype != first.dtype) {
      return FileError(absl::StrFormat("%s: must be %s [tokens, %d] as %s; got %s [%d, %d]",
                                       input.label, DTypeName(first.dtype), first.cols, first.label,
                                       DTypeName(input.dtype), input.rows, input.cols));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

absl::StatusOr<Input> LoadOrName(std::string_view text, std::span<const DType> allowed) {
  if (!IsTensorName(text)) return LoadInput(text, allowed);
  Input input;
  input.name = input.label = std::string(text);
  return input;
}

absl::Status CheckShape(const Input& input, int64_t rows, int64_t cols, const Input& because_of) {
  if (input.rows == rows && input.cols == cols) return absl::OkStatus();
  return FileError(
      absl::StrFormat("%s: shape must be [%d, %d] to fit %s, which is [%d, %d]; got "
                      "[%d, %d]",
                      input.label, rows, cols, because_of.label, because_of.rows, because_of.cols,
                      input.rows, input.cols));
}

absl::StatusOr<std::vector<std::byte>> PackMask(const Input& input) {
  return WithinMemory(OutOfMemory(input.path), [&] { return Packed(input); });
}

absl::Status CheckWritable(std::string_view flag, const std::string& path, bool overwrite) {
  const auto refuse = [&](const std::string& why) {
    return FileError(absl::StrFormat("%s: %s: cannot be written: %s", flag, path, why));
  };
  if (path.empty())
    return UsageError(absl::StrFormat("%s must be the name of a file; got \"\"", flag));
  if (IsDescriptor(path)) return refuse("it is an open descriptor and not a regular file");
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) return refuse(error.message());
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return refuse("it is there and not a regular file");
  }
  if (!overwrite && std::filesystem::exists(status) &&
      std::filesystem::file_size(path, error) > 0 && !error) {
    return UsageError(absl::StrFormat(
        "%s: %s: exists and is not overwritten; --overwrite replaces it", flag, path));
  }
  // The file is replaced by renaming, so what counts is its folder.
  std::filesystem::path folder = std::filesystem::path(FileBehindLinks(path)).parent_path();
  if (folder.empty()) folder = ".";
  std::string probe = (folder / ".sparsefw-cli-XXXXXX").string();
  const int fd = mkstemp(probe.data());
  if (fd < 0) return refuse(std::system_category().message(errno));
  close(fd);
  unlink(probe.c_str());
  return absl::OkStatus();
}

bool SameFile(const std::string& path, const std::string& other) {
  std::error_code error;
  if (std::filesystem::equivalent(path, other, error)) return true;
  // Neither need be there yet, but links and folders on the way may be.
  const auto place = [&error](const std::string& name) {
    const std::filesystem::path file = std::filesystem::absolute(FileBehindLinks(name), error);
    const std::filesystem::path found = std::filesystem::weakly_canonical(file, error);
    return error ? file.lexically_normal() : found;
  };
  return place(path) == place(other);
}

}  // namespace sparsefw::cli
