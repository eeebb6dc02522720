#include "client/cpp/cli/model/layers.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/model/files.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

namespace fs = std::filesystem;

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrFormat("[%s]", absl::StrJoin(shape, ", "));
}

// A Gram matrix of a file, by its place there.
struct GramPlace {
  std::string file;
  std::string tensor;            // empty: the only one
  std::optional<int64_t> index;  // of a stack
  auto operator<=>(const GramPlace&) const = default;
};

class Finder {
 public:
  explicit Finder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  absl::Status AddFolder(const fs::path& folder) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
    }
    if (error) return PathError(folder, "read", error.value());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      SPARSEFW_ASSIGN_OR_RETURN(const auto file, Open(path.string()));
      for (const SafetensorsEntry& entry : file->entries()) {
        const bool by_file = entry.name == "gram" && file->entries().size() == 1;
        SPARSEFW_RETURN_IF_ERROR(
            Add(by_file ? path.stem().string() : entry.name, {path.string(), entry.name, {}}));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddManifest(const fs::path& path) {
    SPARSEFW_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
    const auto grams = json.find("grams");
    if (grams == json.end() || !grams->is_object()) {
      return FileError(absl::StrFormat("%s: must have \"grams\", an object of matrices and files",
                                       path.string()));
    }
    for (const auto& [layer, value] : grams->items()) {
      SPARSEFW_ASSIGN_OR_RETURN(GramPlace place, ParsePlace(path, layer, value));
      SPARSEFW_RETURN_IF_ERROR(Add(layer, std::move(place)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ModelLayers> Take(const std::string& source) {
    if (layers_.empty()) {
      return FileError(absl::StrFormat("%s: holds no Gram matrix of a matrix of %s", source,
                                       checkpoint_.folder()));
    }
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (!layers_.contains(name) && LayerOf(name, tensor).ok()) result_.dense.push_back(name);
    }
    for (auto& [name, layer] : layers_) result_.layers.push_back(std::move(layer));
    return std::move(result_);
  }

 private:
  static absl::StatusOr<GramPlace> ParsePlace(const fs::path& manifest, const std::string& layer,
                                              const Json& value) {
    GramPlace place;
    if (value.is_string()) {
      const fs::path path = manifest.parent_path() / value.get<std::string>();
      const FileRef ref = ParseFileRef(path.string());
      return GramPlace{ref.path, ref.tensor, {}};
    }
    const auto text = [&value](const char* key) {
      const auto found = value.find(key);
      return found != value.end() && found->is_string() ? found->get<std::string>() : "";
    };
    if (!value.is_object() || text("file").empty()) {
      return FileError(absl::StrFormat(
          "%s: %s must be \"FILE[:TENSOR]\" or an object with \"file\"", manifest.string(), layer));
    }
    place.file = (manifest.parent_path() / text("file")).string();
    place.tensor = text("tensor");
    if (const auto index = value.find("index"); index != value.end()) {
      if (!index->is_number_integer() || index->get<int64_t>() < 0) {
        return FileError(absl::StrFormat("%s: %s: \"index\" must be a whole number of at least 0",
                                         manifest.string(), layer));
      }
      place.index = index->get<int64_t>();
    }
    return place;
  }

  absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path) {
    auto& file = files_[path];
    if (file == nullptr) {
      auto opened = SafetensorsFile::Open(path);
      if (!opened.ok()) return FileError(opened.status());
      file = *std::move(opened);
    }
    return file;
  }

  absl::Status Add(const std::string& name, GramPlace place) {
    const auto& tensors = checkpoint_.tensors();
    auto found = tensors.find(name);
    if (found == tensors.end()) found = tensors.find(name + ".weight");
    if (found == tensors.end()) {
      return FileError(absl::StrFormat("%s: a Gram matrix of %s, but %s has no tensor of that name",
                                       place.file, name, checkpoint_.folder()));
    }
    SPARSEFW_ASSIGN_OR_RETURN(ModelLayer layer, LayerOf(found->first, found->second));
    SPARSEFW_ASSIGN_OR_RETURN(layer.gram, GramOf(layer.name, std::move(place)));
    const ModelGram& gram = result_.grams[layer.gram];
    if (gram.d_in != layer.cols) {
      const char* hint = gram.d_in == layer.rows ? " (its transpose would fit)" : "";
      return FileError(absl::StrFormat(
          "%s: is [%d, %d], so its Gram matrix must be [%d, %d]; %s is [%d, %d]%s", layer.name,
          layer.rows, layer.cols, layer.cols, layer.cols, gram.label, gram.d_in, gram.d_in, hint));
    }
    const std::string label = gram.label;
    if (!layers_.emplace(found->first, std::move(layer)).second) {
      return FileError(
          absl::StrFormat("%s: has two Gram matrices; the second is %s", found->first, label));
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<ModelLayer> LayerOf(const std::string& name,
                                            const CheckpointTensor& tensor) {
    const SafetensorsEntry& entry = *tensor.entry;
    const auto dtype = entry.dtype();
    const bool fits =
        dtype.ok() && (*dtype == DType::kF32 || *dtype == DType::kF16 || *dtype == DType::kBF16);
    if (!fits || entry.shape.size() != 2) {
      return FileError(
          absl::StrFormat("%s: must be a matrix of F32, F16 or BF16 to be pruned; it is %s %s",
                          name, entry.dtype_name, Shape(entry.shape)));
    }
    return ModelLayer{name, *dtype, entry.shape[0], entry.shape[1], tensor, 0};
  }

  absl::StatusOr<size_t> GramOf(const std::string& layer, GramPlace place) {
    SPARSEFW_ASSIGN_OR_RETURN(const auto file, Open(place.file));
    const auto entry = file->Find(place.tensor);
    if (!entry.ok()) {
      return FileError(absl::StrFormat("%s: %s", layer, std::string(entry.status().message())));
    }
    place.tensor = (*entry)->name;
    if (const auto known = known_.find(place); known != known_.end()) return known->second;
    SPARSEFW_ASSIGN_OR_RETURN(ModelGram gram, ReadGram(layer, place, **entry, file));
    result_.grams.push_back(std::move(gram));
    return known_[std::move(place)] = result_.grams.size() - 1;
  }

  static absl::StatusOr<ModelGram> ReadGram(const std::string& layer, const GramPlace& place,
                                            const SafetensorsEntry& entry,
                                            std::shared_ptr<const SafetensorsFile> file) {
    ModelGram gram;
    gram.label = absl::StrFormat("%s:%s", place.file, entry.name);
    if (place.index) gram.label += absl::StrFormat("[%d]", *place.index);
    const auto dtype = entry.dtype();
    const std::vector<int64_t>& shape = entry.shape;
    const size_t rank = place.index ? 3 : 2;
    if (!dtype.ok() || (*dtype != DType::kF32 && *dtype != DType::kF64) || shape.size() != rank ||
        shape[rank - 2] != shape[rank - 1] || shape[rank - 1] < 1) {
      return FileError(absl::StrFormat("%s: %s must be F32 or F64 %s; it is %s %s", layer,
                                       gram.label, place.index ? "[n, d_in, d_in]" : "[d_in, d_in]",
                                       entry.dtype_name, Shape(shape)));
    }
    if (place.index && *place.index >= shape[0]) {
      return FileError(
          absl::StrFormat("%s: %s: index must be below %d", layer, gram.label, shape[0]));
    }
    gram.dtype = *dtype;
    gram.d_in = shape[rank - 1];
    const size_t size = static_cast<size_t>(gram.d_in * gram.d_in) * SizeOf(gram.dtype);
    gram.bytes = entry.bytes.subspan(static_cast<size_t>(place.index.value_or(0)) * size, size);
    const auto tokens = file->metadata().find("token_count");
    if (tokens == file->metadata().end() || !absl::SimpleAtoi(tokens->second, &gram.tokens)) {
      gram.tokens = 0;
    }
    gram.tokens = std::max<int64_t>(gram.tokens, 0);
    gram.file = std::move(file);
    return gram;
  }

  const Checkpoint& checkpoint_;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files_;
  std::map<GramPlace, size_t> known_;
  std::map<std::string, ModelLayer> layers_;
  ModelLayers result_;
};

}  // namespace

absl::StatusOr<ModelLayers> FindLayers(const Checkpoint& checkpoint, const std::string& grams) {
  Finder finder(checkpoint);
  std::error_code error;
  SPARSEFW_RETURN_IF_ERROR(fs::is_directory(grams, error) ? finder.AddFolder(grams)
                                                          : finder.AddManifest(grams));
  return finder.Take(grams);
}

}  // namespace sparsefw::cli
