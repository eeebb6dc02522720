// A model as Transformers stores it: a folder with one safetensors file, or several with an index.
#ifndef SPARSEFW_CLIENT_CLI_MODEL_CHECKPOINT_H_
#define SPARSEFW_CLIENT_CLI_MODEL_CHECKPOINT_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "sparsefw/safetensors.h"

namespace sparsefw::cli {

// A tensor and where it is.
struct CheckpointTensor {
  const SafetensorsEntry* entry = nullptr;
  std::string file;    // name in the folder
  int64_t offset = 0;  // of the first byte in the file
};

// Read from where it is mapped. Immutable.
class Checkpoint {
 public:
  // model.safetensors, or model.safetensors.index.json and the files that it names, or the only
  // safetensors file of the folder. Errors (exit code 2): none of these; an index that names no
  // tensor, a file outside of the folder, or a tensor that its file does not hold; what
  // SafetensorsFile says.
  static absl::StatusOr<Checkpoint> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  // By name, in the order of names.
  const std::map<std::string, CheckpointTensor>& tensors() const { return tensors_; }

 private:
  absl::Status AddFile(const std::string& name);
  absl::Status AddIndexed(const std::string& index);

  std::string folder_;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files_;
  std::map<std::string, CheckpointTensor> tensors_;
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_MODEL_CHECKPOINT_H_
