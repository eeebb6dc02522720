// Tensors that a request describes before they are uploaded.
#ifndef SPARSEFW_SERVER_RPC_JOBS_ANNOUNCED_INPUTS_H_
#define SPARSEFW_SERVER_RPC_JOBS_ANNOUNCED_INPUTS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// Shapes and dtypes that PruneHeader and CheckJobOptionsRequest give for the
// inputs that `spec` does not name.
// Errors: InvalidArgument  a description that CreateUpload would refuse, of
//                          another kind than its field asks for, or of an input
//                          that has a name too (SPEC_INVALID, ENUM_UNKNOWN);
//                          of a Prune header also an input that has neither
absl::StatusOr<InputSpecs> AnnouncedInputs(const JobSpec& spec, const v1::PruneHeader& header);
absl::StatusOr<InputSpecs> AnnouncedInputs(const JobSpec& spec,
                                           const v1::CheckJobOptionsRequest& request);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_JOBS_ANNOUNCED_INPUTS_H_
