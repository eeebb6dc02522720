// Reading and writing safetensors files, with no trust in the header.
#ifndef SPARSEFW_SAFETENSORS_H_
#define SPARSEFW_SAFETENSORS_H_

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
#include "sparsefw/matrix.h"

namespace sparsefw {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;  // as written; may be one we do not compute with ("I64")
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // into the mapped file

  // The dtype, if it is one of ours, and the whole as a matrix.
  // Errors: InvalidArgument  dtype or rank; the message names file and tensor.
  absl::StatusOr<DType> dtype() const;
  absl::StatusOr<ConstMatrixView> AsMatrix() const;
};

// A memory-mapped file. Immutable and thread-safe; views into it live as long
// as it does.
class SafetensorsFile {
 public:
  // Checks everything before the first entry is handed out:
  // Errors:  NotFound / PermissionDenied  the file cannot be opened
  //          InvalidArgument  shorter than its header says; header over
  //          kMaxHeaderBytes, not JSON, nested too deep, or not an object of
  //          {dtype, shape, data_offsets}; offsets negative, reversed,
  //          overlapping, leaving holes, or beyond the file; size that is not
  //          product(shape) * sizeof(dtype); product that overflows; the same
  //          name twice. The message begins with the path.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);

  // The format's own limit.
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;

  const std::string& path() const;
  const std::vector<SafetensorsEntry>& entries() const;
  const std::map<std::string, std::string>& metadata() const;

  // Empty `name`: the only tensor of the file.
  // Errors: NotFound  no such tensor (the message lists up to ten that there are)
  //         InvalidArgument  name is empty and the file holds several
  absl::StatusOr<const SafetensorsEntry*> Find(std::string_view name) const;

  ~SafetensorsFile();

 private:
  SafetensorsFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SafetensorsTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Writes to a temporary file beside `path`, then renames: a reader sees the
// old file or the whole new one, and a failure leaves nothing behind.
// Errors: InvalidArgument size mismatch or duplicate name; ResourceExhausted
//         disk full; PermissionDenied; each names the path.
absl::Status WriteSafetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace sparsefw

#endif  // SPARSEFW_SAFETENSORS_H_
