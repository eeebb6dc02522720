// The flags of a job that each set one field of its spec.
#ifndef SPARSEFW_CLIENT_CLI_SPEC_FLAGS_H_
#define SPARSEFW_CLIENT_CLI_SPEC_FLAGS_H_

#include "sparsefw/v1/job.pb.h"

namespace CLI {
class App;
}

namespace sparsefw::cli {

// Adds those of one group of the help, in the order of the list in spec_flags.cc. Parsing sets
// fields of `spec`, which must outlive `app`.
enum class SpecFlagGroup { kMethod, kSolver, kRefinement, kJob };
void AddSpecFlags(CLI::App& app, SpecFlagGroup group, v1::JobSpec& spec);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_SPEC_FLAGS_H_
