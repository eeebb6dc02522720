// The header of NumPy's .npy files (numpy.lib.format, versions 1 to 3), with no trust in it.
#ifndef SPARSEFW_CLIENT_CLI_FILES_NPY_H_
#define SPARSEFW_CLIENT_CLI_FILES_NPY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sparsefw::cli {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NpyArray {
  std::string dtype_name;  // "F32", "F64", ...; one that we do not compute with as it is written
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // into the file
};

// The array of a file that begins with kNpyMagic; row-major, little-endian.
// Errors (exit code 2): a header that is none; an array in the order of Fortran, of Python objects
//         or of fields; more or fewer bytes than the shape says. The message begins with `path`.
absl::StatusOr<NpyArray> ParseNpy(std::string_view path, std::span<const std::byte> file);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FILES_NPY_H_
