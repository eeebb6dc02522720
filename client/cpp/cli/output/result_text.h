// The result and the state of a job as aligned text for people.
#ifndef SPARSEFW_CLIENT_CLI_RESULT_TEXT_H_
#define SPARSEFW_CLIENT_CLI_RESULT_TEXT_H_

#include <string>

#include "client/cpp/cli/flags/options.h"
#include "client/cpp/cli/output/result.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// First the loss relative to |WX|^2, the reduction against the warm start, the
// certificate and the sparsity, in per cent; then the details, and the
// table of a sweep. `output` has the files that were written; empty: none.
std::string ResultText(const v1::Job& job, const ClientTimes& times, const OutputOptions& output);

// What to warn of where the loss is that of new weights and `output` names no file for them; empty:
// nothing.
std::string WeightsWithoutFile(const v1::Job& job, const OutputOptions& output);

// ResultText for a job that has ended with a result, else its state and progress.
std::string StatusText(const v1::Job& job);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_RESULT_TEXT_H_
