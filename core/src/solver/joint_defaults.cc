// The window of the joint search where none is asked for.
#include <algorithm>

#include "sparsefw/joint.h"

namespace sparsefw {

double JointAlpha(const Pattern& pattern) {
  return pattern.kind == Pattern::Kind::kKeepOfGroup ? kWideJointAlpha : 0.9;
}

double JointExcluded(const Pattern& pattern, double alpha) {
  if (pattern.kind == Pattern::Kind::kKeepOfGroup) return kWideJointExcluded;
  const double kept = 1 - pattern.sparsity;
  return std::clamp(pattern.sparsity - (1 - alpha) * kept, 0.0, 0.99);
}

}  // namespace sparsefw
