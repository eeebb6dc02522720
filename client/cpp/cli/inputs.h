// Input tensors of commands: in local files, checked before an upload, or on the server already.
#ifndef SPARSEFW_CLIENT_CLI_INPUTS_H_
#define SPARSEFW_CLIENT_CLI_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/dtype.h"
#include "sparsefw/safetensors.h"

namespace sparsefw::cli {

// FILE[:TENSOR] of the command line.
struct FileRef {
  std::string path;
  std::string tensor;  // empty: the only one of the file
  friend bool operator==(const FileRef&, const FileRef&) = default;
};

// Paths and tensor names may both contain colons. The whole text is the path
// if such a file exists; else the longest part before a colon that is a file;
// else the text is cut at its last colon.
FileRef ParseFileRef(std::string_view text);

// "tensors/<id>", what `--keep-tensors` says that it kept. A file of that name
// is meant where there is one.
bool IsTensorName(std::string_view text);

// A two-dimensional tensor in a mapped file, or a tensor on the server, of which
// only `label` and `name` are known here.
struct Input {
  std::string name;   // "tensors/<id>"; empty: in a file
  std::string label;  // "weights.safetensors", or "weights.safetensors:q_proj" where there are more
  std::string path;
  std::string tensor;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;
  std::map<std::string, std::string> metadata;  // of the file
  std::shared_ptr<const void> file;             // keeps `bytes`
};

// `text` is FILE[:TENSOR]. Float64 is narrowed to float32 where only that is allowed.
// Errors (exit code 2): what OpenTensor says; a dtype that is not in `allowed`; not two dimensions
// of at least 1.
absl::StatusOr<Input> LoadInput(std::string_view text, std::span<const DType> allowed);

// The batches of activations [tokens, d_in] or [..., tokens, d_in], as float32, float16 or
// bfloat16. Errors (exit code 2): as above; a text twice; dtypes or numbers of inputs that differ.
absl::StatusOr<std::vector<Input>> LoadActivations(const std::vector<std::string>& texts);

// The same, or a tensor on the server, which only the server can check.
absl::StatusOr<Input> LoadOrName(std::string_view text, std::span<const DType> allowed);

// Errors: the shape is not [rows, cols]; names both files.
absl::Status CheckShape(const Input& input, int64_t rows, int64_t cols, const Input& because_of);

// BOOL to the packed bytes of the wire. Errors: a byte other than 0 and 1.
absl::StatusOr<std::vector<std::byte>> PackMask(const Input& input);

// An output file can be written where `path` says, as far as can be known
// before it is written. `flag` is for the message. Errors (exit code 2): a file is there that holds
// something, unless `overwrite`.
absl::Status CheckWritable(std::string_view flag, const std::string& path, bool overwrite);
// `path` and `other` are the same file.
bool SameFile(const std::string& path, const std::string& other);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_INPUTS_H_
