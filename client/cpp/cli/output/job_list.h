// Jobs as a table for people.
#ifndef SPARSEFW_CLIENT_CLI_JOB_LIST_H_
#define SPARSEFW_CLIENT_CLI_JOB_LIST_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// A header, and one line a job: name, state, method, pattern, shape, its loss in per cent or how
// far it is, its age, and its labels but those of this program.
std::string ListText(const std::vector<v1::Job>& jobs, absl::Time now);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_JOB_LIST_H_
