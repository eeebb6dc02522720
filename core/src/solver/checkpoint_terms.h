// The solve that a checkpoint is good for: everything but the values of the inputs that
// the bits of a solve depend on, as text.
#ifndef SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_TERMS_H_
#define SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_TERMS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "sparsefw/solver.h"

namespace sparsefw {

// A line "name=value" for each of them. Not the deadline, which only a solve that
// meets it depends on, nor the threads, on which none does.
std::string CheckpointTerms(const Problem& problem, const SolveOptions& options,
                            const Backend& backend, int sweep_point);

// Errors: FailedPrecondition (CHECKPOINT_INVALID), naming the first that differs
absl::Status CompareTerms(std::string_view written, std::string_view wanted);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_TERMS_H_
