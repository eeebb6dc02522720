#include "client/cpp/cli/inputs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/exit_code.h"
#include "sparsefw/mask.h"

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
  const FileRef ref = ParseFileRef(text);
  auto file = SafetensorsFile::Open(ref.path);
  if (!file.ok()) return FileError(file.status());
  const auto found = (*file)->Find(ref.tensor);
  if (!found.ok()) return FileError(found.status());
  const SafetensorsEntry& entry = **found;

  Input input;
  input.path = ref.path;
  input.tensor = entry.name;
  input.label = ref.tensor.empty() ? ref.path : absl::StrFormat("%s:%s", ref.path, entry.name);
  const auto dtype = entry.dtype();
  if (!dtype.ok() || std::find(allowed.begin(), allowed.end(), *dtype) == allowed.end()) {
    std::vector<std::string> names;
    for (const DType each : allowed) names.emplace_back(DTypeName(each));
    return FileError(absl::StrFormat("%s: dtype must be %s; got %s", input.label,
                                     absl::StrJoin(names, " or "), entry.dtype_name));
  }
  if (entry.shape.size() != 2 || entry.shape[0] < 1 || entry.shape[1] < 1) {
    return FileError(absl::StrFormat("%s: must have two dimensions of at least 1; got shape %s",
                                     input.label, Shape(entry.shape)));
  }
  input.dtype = *dtype;
  input.rows = entry.shape[0];
  input.cols = entry.shape[1];
  input.bytes = entry.bytes;
  input.metadata = (*file)->metadata();
  input.file = *std::move(file);
  return input;
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

absl::Status CheckWritable(std::string_view flag, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return FileError(absl::StrFormat("%s: %s: cannot be written: %s", flag, path, why));
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) return refuse(error.message());
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return refuse("it is there and not a regular file");
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
  return std::filesystem::absolute(path, error).lexically_normal() ==
         std::filesystem::absolute(other, error).lexically_normal();
}

}  // namespace sparsefw::cli
