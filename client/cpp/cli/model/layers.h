// The matrices of a model that are pruned, each with its Gram matrix.
#ifndef SPARSEFW_CLIENT_CLI_MODEL_LAYERS_H_
#define SPARSEFW_CLIENT_CLI_MODEL_LAYERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/cli/model/checkpoint.h"
#include "sparsefw/dtype.h"
#include "sparsefw/safetensors.h"

namespace sparsefw::cli {

// G = X^T X [d_in, d_in], F32 or F64, in a mapped file.
struct ModelGram {
  std::string label;  // "grams.safetensors:q_proj", with an index "[3]" where it is one of a stack
  DType dtype = DType::kF32;
  int64_t d_in = 0;
  int64_t tokens = 0;  // 0: unknown
  std::span<const std::byte> bytes;
  std::shared_ptr<const SafetensorsFile> file;
};

// W [rows, cols] = [d_out, d_in], F32, F16 or BF16.
struct ModelLayer {
  std::string name;  // of the tensor
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  CheckpointTensor tensor;
  size_t gram = 0;  // index; layers that name the same matrix share it

  std::span<const std::byte> bytes() const { return tensor.entry->bytes; }
};

struct ModelLayers {
  std::vector<ModelLayer> layers;  // in the order of names
  std::vector<ModelGram> grams;
  std::vector<std::string> dense;  // matrices without a Gram matrix, which stay as they are
};

// `grams` is a folder of safetensors files, or a JSON file.
//
//   Folder: a tensor belongs to the matrix of the model that has its name, or its name and
//           ".weight"; one called "gram" that is alone in its file, to the matrix that has the
//           file's name.
//   JSON:   {"grams": {"<matrix>": "FILE[:TENSOR]"}}; the value may also be {"file": "...",
//           "tensor": "...", "index": 3}, the index being that of a stack [n, d_in, d_in]. Files
//           are relative to that of the JSON. Matrices that name the same Gram share it.
//
// Errors (exit code 2) name the layer: a Gram matrix of no matrix of the model, two of one; not F32
// or F64 [d_in, d_in]; a matrix that is not F32, F16 or BF16 with two dimensions; none at all.
absl::StatusOr<ModelLayers> FindLayers(const Checkpoint& checkpoint, const std::string& grams);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_MODEL_LAYERS_H_
