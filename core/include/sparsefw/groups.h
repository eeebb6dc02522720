// The groups of coordinates that a sparsity pattern divides a matrix into: pattern.h.
#ifndef SPARSEFW_GROUPS_H_
#define SPARSEFW_GROUPS_H_

#include <cstdint>

namespace sparsefw {

// The shape of the partition for a valid pattern and a [rows, cols] matrix.
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

#endif  // SPARSEFW_GROUPS_H_
