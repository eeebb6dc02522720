// From the relaxed mask to a mask.
#ifndef SPARSEFW_CORE_SRC_CPU_SELECT_ROUNDING_H_
#define SPARSEFW_CORE_SRC_CPU_SELECT_ROUNDING_H_

#include "absl/status/statusor.h"
#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"

namespace sparsefw::cpu {

// Keeps the fixed set and in every group the (free capacity) largest free
// entries of the relaxed mask; of equal entries the higher saliency, then the
// higher index. Entries closer than 2^-20 may count as equal: what tells them
// apart is rounding. Counts are exact whatever state the iterate is in.
//
// Errors: Cancelled
template <typename Real>
absl::StatusOr<RoundedMask> RoundMask(const Iterate<Real>& iterate,
                                      const RelaxedMask<Real>& relaxed,
                                      const SaliencySource& saliency,
                                      const ParallelContext& context);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SELECT_ROUNDING_H_
