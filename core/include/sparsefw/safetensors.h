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
  std::string_view file;             // its path, for messages; lives as long as the file

  // The dtype, if it is one of ours, and the whole as a matrix.
  // Errors: InvalidArgument  dtype (DTYPE_UNSUPPORTED); rank that is not 2
  //         (SHAPE_MISMATCH); bytes that do not begin at a multiple of the
  //         element's size, which some writers produce (FILE_INVALID). The
  //         message names file and tensor.
  absl::StatusOr<DType> dtype() const;
  absl::StatusOr<ConstMatrixView> AsMatrix() const;
};

// A memory-mapped file. Immutable and thread-safe; views into it live as long
// as it does. Nothing is copied but the header, so whoever else cuts the file
// short while it is mapped turns reads beyond its new end into SIGBUS: do not
// map a file that is still being written in place (WriteSafetensors never is).
class SafetensorsFile {
 public:
  // Checks everything before the first entry is handed out:
  // Errors:  NotFound / PermissionDenied  the file cannot be opened
  //          InvalidArgument (FILE_INVALID)  not a regular file; shorter than
  //          its header says; header over kMaxHeaderBytes, not JSON, nested too
  //          deep, or not an object of {dtype, shape, data_offsets} and the
  //          strings of __metadata__; a dtype that the format does not know;
  //          offsets negative, reversed, overlapping, leaving holes, or beyond
  //          the file; size that is not product(shape) * sizeof(dtype); product
  //          that overflows; over kMaxRank dimensions; the same name twice.
  //          The message begins with the path.
  // Memory:  a small multiple of the header.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);

  // The format's own limit.
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;
  // Ours: no framework has more, and a header of dimensions alone stays small.
  static constexpr int64_t kMaxRank = 64;

  const std::string& path() const { return path_; }
  // In the order of the header.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Empty `name`: the only tensor of the file.
  // Errors: NotFound  no such tensor (the message lists up to ten that there are)
  //         InvalidArgument  name is empty and the file holds several
  absl::StatusOr<const SafetensorsEntry*> Find(std::string_view name) const;

  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile();

 private:
  SafetensorsFile() = default;

  std::string path_;
  std::span<const std::byte> mapped_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<size_t> by_name_;  // of entries_, ascending
  std::map<std::string, std::string> metadata_;
};

struct SafetensorsTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// The file that a program writes to when `path` is given: where symbolic links lead, be it to
// nothing yet. An open descriptor (/dev/stdout, /proc/self/fd/1) is not followed.
std::string FileBehindLinks(const std::string& path);

// Whether links lead from a path to an open descriptor.
bool IsDescriptor(const std::string& path);

// Writes to a temporary file beside FileBehindLinks(path), then renames: a reader sees the
// old file or the whole new one, and a failure leaves nothing behind. Nor does a kill before the
// rename, where the file system has files without a name. Links stay. Tensors with larger
// elements come first in the file, so that all of them are aligned.
// Errors: InvalidArgument size mismatch; a name twice, reserved or not UTF-8;
//         header over kMaxHeaderBytes; a path that is there and no regular
//         file; ResourceExhausted disk full; PermissionDenied; NotFound the
//         folder; each names the path.
absl::Status WriteSafetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace sparsefw

#endif  // SPARSEFW_SAFETENSORS_H_
