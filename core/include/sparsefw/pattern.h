// Sparsity patterns: which coordinates share a budget, and how large it is.
//
// A pattern is a partition of the coordinates into groups, each with a number
// of weights that is KEPT, its capacity:
//
//   unstructured   one group, the matrix     rows*cols - floor(rows*cols*sparsity)
//   per_row        each row                  cols - floor(cols*sparsity)
//   n:m            each run of `group` consecutive columns of a row     `keep`
//
// `sparsity` is always the fraction REMOVED. The product is formed in float64
// and then floored, as int() does in the published scripts: 0.29 of 100 is 28.
#ifndef SPARSEFW_PATTERN_H_
#define SPARSEFW_PATTERN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw {

struct Pattern {
  enum class Kind { kUnstructured, kPerRow, kKeepOfGroup };

  Kind kind = Kind::kUnstructured;
  double sparsity = 0.5;  // kUnstructured, kPerRow: [0, 1]
  int keep = 2;           // kKeepOfGroup: [1, group]
  int group = 4;          // kKeepOfGroup: >= 1, divides cols

  static Pattern Unstructured(double sparsity);
  static Pattern PerRow(double sparsity);
  static Pattern KeepOfGroup(int keep, int group);

  friend bool operator==(const Pattern&, const Pattern&) = default;
};

std::string_view NameOf(Pattern::Kind kind);  // "per_row"
// "unstructured 60%", "per-row 60%", "2:4".
std::string ToString(const Pattern& pattern);

// Errors: InvalidArgument  sparsity outside [0, 1] or NaN; keep outside
//         [1, group]; cols not divisible by group; rows or cols below 1.
absl::Status ValidatePattern(const Pattern& pattern, int64_t rows, int64_t cols);

// The groups of a valid pattern and a [rows, cols] matrix.
Groups GroupsOf(const Pattern& pattern, int64_t rows, int64_t cols);

}  // namespace sparsefw

#endif  // SPARSEFW_PATTERN_H_
