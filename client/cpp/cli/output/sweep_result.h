// The points of a sweep: the best one, and all as JSON and as a table.
#ifndef SPARSEFW_CLIENT_CLI_SWEEP_RESULT_H_
#define SPARSEFW_CLIENT_CLI_SWEEP_RESULT_H_

#include <string>

#include "nlohmann/json.hpp"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// The setting of the job's result: of a sweep its best point, else the job's own.
v1::SweepPoint ResultPoint(const v1::Job& job);

// An object for every point, in order: its setting, its numbers or its error.
nlohmann::ordered_json SweepJson(const v1::Job& job);

// The same as an aligned table with losses relative to |WX|^2, the best point
// marked with a star.
std::string SweepText(const v1::Job& job);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_SWEEP_RESULT_H_
