#include "sparsefw/pattern.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "core/src/base/number_text.h"
#include "sparsefw/reason.h"

namespace sparsefw {
namespace {

int64_t KeptOf(int64_t size, double sparsity) {
  return size - static_cast<int64_t>(std::floor(static_cast<double>(size) * sparsity));
}

}  // namespace

Pattern Pattern::Unstructured(double sparsity) {
  return Pattern{.kind = Kind::kUnstructured, .sparsity = sparsity};
}

Pattern Pattern::PerRow(double sparsity) {
  return Pattern{.kind = Kind::kPerRow, .sparsity = sparsity};
}

Pattern Pattern::KeepOfGroup(int keep, int group) {
  return Pattern{.kind = Kind::kKeepOfGroup, .keep = keep, .group = group};
}

std::string ToString(const Pattern& pattern) {
  switch (pattern.kind) {
    case Pattern::Kind::kUnstructured:
      return absl::StrFormat("unstructured %g%%", 100 * pattern.sparsity);
    case Pattern::Kind::kPerRow:
      return absl::StrFormat("per-row %g%%", 100 * pattern.sparsity);
    case Pattern::Kind::kKeepOfGroup:
      return absl::StrFormat("%d:%d", pattern.keep, pattern.group);
  }
  return "?";
}

absl::Status ValidatePattern(const Pattern& pattern, int64_t rows, int64_t cols) {
  if (rows < 1 || cols < 1 || rows > std::numeric_limits<int64_t>::max() / cols) {
    return Invalid("SHAPE_MISMATCH",
                   "rows and cols must be at least 1 and rows*cols below 2^63; got [%d, %d]", rows,
                   cols);
  }
  if (pattern.kind != Pattern::Kind::kKeepOfGroup) {
    // The negation catches NaN.
    if (!(pattern.sparsity >= 0 && pattern.sparsity <= 1)) {
      return Invalid("PATTERN_INVALID", "sparsity must be in [0, 1]; got %s",
                     NumberText(pattern.sparsity));
    }
    return absl::OkStatus();
  }
  if (pattern.group < 1 || pattern.keep < 1 || pattern.keep > pattern.group) {
    return Invalid("PATTERN_INVALID", "keep must be in [1, group]; got keep=%d, group=%d",
                   pattern.keep, pattern.group);
  }
  if (cols % pattern.group != 0) {
    return Invalid("PATTERN_INVALID", "cols must be divisible by group; got cols=%d, group=%d",
                   cols, pattern.group);
  }
  return absl::OkStatus();
}

Groups GroupsOf(const Pattern& pattern, int64_t rows, int64_t cols) {
  Groups groups;
  groups.group_cols = cols;
  groups.groups_per_row = 1;
  switch (pattern.kind) {
    case Pattern::Kind::kUnstructured:
      groups.whole_matrix = true;
      groups.capacity = KeptOf(rows * cols, pattern.sparsity);
      groups.total_kept = groups.capacity;
      break;
    case Pattern::Kind::kPerRow:
      groups.capacity = KeptOf(cols, pattern.sparsity);
      groups.total_kept = rows * groups.capacity;
      break;
    case Pattern::Kind::kKeepOfGroup:
      groups.group_cols = pattern.group;
      groups.groups_per_row = cols / pattern.group;
      groups.capacity = pattern.keep;
      groups.total_kept = rows * groups.groups_per_row * groups.capacity;
      break;
  }
  return groups;
}

}  // namespace sparsefw
