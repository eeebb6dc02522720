#include "client/cpp/cli/model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/model/files.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kOneFile[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

std::vector<std::string> SafetensorsIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename());
  }
  return names;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const fs::path path = folder;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return FileError(absl::StrFormat("%s: must be a folder with a model", folder));
  }
  if (fs::exists(path / kIndex, error)) {
    SPARSEFW_RETURN_IF_ERROR(checkpoint.AddIndexed(kIndex));
  } else if (fs::exists(path / kOneFile, error)) {
    SPARSEFW_RETURN_IF_ERROR(checkpoint.AddFile(kOneFile));
  } else {
    const std::vector<std::string> names = SafetensorsIn(path);
    if (names.size() != 1) {
      return FileError(
          absl::StrFormat("%s: must hold %s, or %s with its files; it holds %d "
                          "safetensors files",
                          folder, kOneFile, kIndex, names.size()));
    }
    SPARSEFW_RETURN_IF_ERROR(checkpoint.AddFile(names[0]));
  }
  return checkpoint;
}

absl::Status Checkpoint::AddFile(const std::string& name) {
  const fs::path path = fs::path(folder_) / name;
  auto file = SafetensorsFile::Open(path.string());
  if (!file.ok()) return FileError(file.status());
  // The tensors fill the file from the end of its header on.
  const std::byte* first = nullptr;
  int64_t bytes = 0;
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    if (entry.bytes.empty()) continue;
    first = first == nullptr ? entry.bytes.data() : std::min(first, entry.bytes.data());
    bytes += std::ssize(entry.bytes);
  }
  std::error_code error;
  const auto begin = static_cast<int64_t>(fs::file_size(path, error)) - bytes;
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    const int64_t offset = entry.bytes.empty() ? 0 : entry.bytes.data() - first;
    if (!tensors_.emplace(entry.name, CheckpointTensor{&entry, name, begin + offset}).second) {
      return FileError(absl::StrFormat("%s: tensor %s is in two files", folder_, entry.name));
    }
  }
  files_[name] = *std::move(file);
  return absl::OkStatus();
}

absl::Status Checkpoint::AddIndexed(const std::string& index) {
  const fs::path path = fs::path(folder_) / index;
  SPARSEFW_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    return FileError(absl::StrFormat("%s: must have a \"weight_map\" of tensors and their files",
                                     path.string()));
  }
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name) {
      return FileError(absl::StrFormat("%s: the file of %s must be a name in this folder",
                                       path.string(), tensor));
    }
    if (!files_.contains(name)) SPARSEFW_RETURN_IF_ERROR(AddFile(name));
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second.file != name) {
      return FileError(
          absl::StrFormat("%s: %s must be in %s; it is not", path.string(), tensor, name));
    }
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::cli
