// Types of the public headers that sources of kernels read, too: nothing that takes nvcc long is
// included here (script/check layering).
#ifndef SPARSEFW_KERNEL_TYPES_H_
#define SPARSEFW_KERNEL_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace sparsefw {

// The element types of matrices; names and conversions: dtype.h. kBool is one byte an element
// (safetensors' BOOL); packed one-bit masks are not a dtype of a matrix view but a type of their
// own, Mask.
enum class DType { kF32, kF16, kBF16, kF64, kBool };

// Bytes of one element.
size_t SizeOf(DType dtype);

// The groups of coordinates that a valid sparsity pattern (pattern.h) divides a [rows, cols] matrix
// into.
// Group g of row r covers columns [g*group_cols, (g+1)*group_cols); for
// Pattern::Kind::kUnstructured there is one group over everything.
struct Groups {
  bool whole_matrix = false;
  int64_t group_cols = 0;      // columns of a group; cols when whole_matrix
  int64_t groups_per_row = 0;  // 1 for per_row and unstructured
  int64_t capacity = 0;        // kept weights of one group
  int64_t total_kept = 0;      // kept weights of the matrix
  friend bool operator==(const Groups&, const Groups&) = default;
};

}  // namespace sparsefw

#endif  // SPARSEFW_KERNEL_TYPES_H_
