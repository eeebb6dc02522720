// Tensors in files of several formats, recognised by their first bytes and never by the name.
#ifndef SPARSEFW_CLIENT_CLI_FILES_TENSOR_FILE_H_
#define SPARSEFW_CLIENT_CLI_FILES_TENSOR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sparsefw::cli {

struct FileTensor {
  std::string name;  // empty: a .npy file, whose array has none
  std::string dtype_name;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::map<std::string, std::string> metadata;  // of the file
  std::shared_ptr<const void> file;             // keeps `bytes` mapped
};

// `tensor` of a safetensors file (empty: the only one), or the array of a .npy file.
// Errors (exit code 2): what SafetensorsFile and ParseNpy say; a tensor that is named of a .npy
//         file; a .npz archive or a file of torch.save, with the command that converts it.
absl::StatusOr<FileTensor> OpenTensor(const std::string& path, const std::string& tensor);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FILES_TENSOR_FILE_H_
