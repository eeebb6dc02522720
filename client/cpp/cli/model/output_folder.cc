#include "client/cpp/cli/model/output_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/model/files.h"
#include "sparsefw/mask.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

namespace fs = std::filesystem;

// Links to files are followed: model hubs keep files in a store and link to them.
absl::Status CopyTree(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) return PathError(to, "made", error.value());
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const fs::path target = to / entry.path().filename();
    if (entry.is_directory(error) && entry.is_symlink(error)) {
      fs::copy_symlink(entry.path(), target, error);  // it may lead back
      continue;
    }
    if (entry.is_directory(error)) {
      SPARSEFW_RETURN_IF_ERROR(CopyTree(entry.path(), target));
      continue;
    }
    fs::copy_file(entry.path(), target, error);
    if (error) return PathError(entry.path(), "copied to " + target.string(), error.value());
    fs::permissions(target, fs::perms::owner_write, fs::perm_options::add, error);
  }
  return error ? PathError(from, "read", error.value()) : absl::OkStatus();
}

absl::Status Overwrite(const fs::path& path, int64_t offset, std::span<const std::byte> bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return PathError(path, "written", errno);
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      error = errno;
    } else {
      offset += written;
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }
  if (error == 0 && fsync(fd) != 0) error = errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : PathError(path, "written", error);
}

}  // namespace

absl::Status CheckOutputFolder(const fs::path& out, const std::string& model) {
  std::error_code error;
  if (IsWithin(out, model) || IsWithin(model, out)) {
    return UsageError(absl::StrFormat("--out: %s and the model in %s must not be in each other",
                                      out.string(), model));
  }
  if (fs::exists(out, error) && !fs::exists(out / kModelFacts, error) &&
      !(fs::is_directory(out, error) && fs::is_empty(out, error))) {
    return FileError(absl::StrFormat(
        "--out: %s exists and is no model that was pruned before; it is not overwritten",
        out.string()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> PrunedBytes(const ModelLayer& layer,
                                                   const LayerRecord& record) {
  if (record.has_weight) {
    if (record.data.size() == layer.bytes().size()) return record.data;
    return absl::InternalError(layer.name + ": the pruned weight has another size");
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Mask mask, Mask::FromBytes(layer.rows, layer.cols, record.data));
  std::vector<std::byte> bytes(layer.bytes().begin(), layer.bytes().end());
  const size_t size = SizeOf(layer.dtype);
  std::byte* element = bytes.data();
  for (int64_t row = 0; row < layer.rows; ++row) {
    for (int64_t col = 0; col < layer.cols; ++col, element += size) {
      if (!mask.Get(row, col)) std::memset(element, 0, size);
    }
  }
  return bytes;
}

absl::Status WriteOutputFolder(
    const fs::path& out, const Checkpoint& checkpoint, const ModelLayers& layers, const Json& facts,
    const std::function<absl::StatusOr<LayerRecord>(size_t layer)>& record) {
  const fs::path target = fs::absolute(out).lexically_normal();
  const fs::path place = target.has_filename() ? target : target.parent_path();
  const fs::path partial =
      place.parent_path() / absl::StrFormat(".%s.partial", place.filename().string());
  std::error_code error;
  fs::remove_all(partial, error);
  SPARSEFW_RETURN_IF_ERROR(CopyTree(checkpoint.folder(), partial));
  for (size_t i = 0; i < layers.layers.size(); ++i) {
    const ModelLayer& layer = layers.layers[i];
    SPARSEFW_ASSIGN_OR_RETURN(const LayerRecord done, record(i));
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, PrunedBytes(layer, done));
    SPARSEFW_RETURN_IF_ERROR(Overwrite(partial / layer.tensor.file, layer.tensor.offset, bytes));
  }
  SPARSEFW_RETURN_IF_ERROR(WriteJsonFile(partial / kModelFacts, facts));
  SPARSEFW_RETURN_IF_ERROR(CheckOutputFolder(place, checkpoint.folder()));
  fs::remove_all(place, error);
  fs::rename(partial, place, error);
  return error ? PathError(place, "written", error.value()) : absl::OkStatus();
}

}  // namespace sparsefw::cli
