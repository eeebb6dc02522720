// Constants of the joint search, shared by the engines that work on tableaus.
#ifndef SPARSEFW_CORE_SRC_JOINT_JOINT_RULES_H_
#define SPARSEFW_CORE_SRC_JOINT_JOINT_RULES_H_

#include <cstdint>

#include "core/src/frank_wolfe/swap_tolerance.h"

namespace sparsefw {

// Only exchanges that gain this share of a pass's best one are taken: the others find better
// partners on the tableau after them.
inline constexpr double kWorthTaking = 0.1;
// Passes of one row; each takes one exchange at least.
inline constexpr int64_t kMostPasses = 4096;
// Times that excluded columns are looked at.
inline constexpr int kMostAdmissions = 4;

// The smallest pivot that is not taken for rounding, as a part of its diagonal.
template <typename Real>
inline constexpr Real kPivotFloor = sizeof(Real) == sizeof(float) ? Real(1e-5) : Real(1e-11);

// Gains in float32 are good to a few parts in 10^5.
template <typename Real>
inline constexpr double kTableauTolerance = sizeof(Real) == sizeof(float) ? 10 * kJointTolerance
                                                                          : kJointTolerance;

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_JOINT_JOINT_RULES_H_
