// What was done to a model, layer by layer: a table for people, an object for programs.
#ifndef SPARSEFW_CLIENT_CLI_MODEL_MODEL_REPORT_H_
#define SPARSEFW_CLIENT_CLI_MODEL_MODEL_REPORT_H_

#include <string>
#include <vector>

#include "client/cpp/cli/model/files.h"

namespace sparsefw::cli {

// Each is the facts of a record (RunState). Loss: of what was written, as a share of pruning the
// whole layer. Below warm start: 1 - loss / loss of the warm start's mask. Certificate: lower bound
// / loss of the mask, of methods that have one.
std::string ModelTable(const std::vector<Json>& layers);

// "loss 4.12 %, 12.3 % below warm start", of one layer.
std::string LayerNumbers(const Json& layer);

// "2 matrices without a Gram matrix stay dense: lm_head.weight, wte.weight"; at most four names.
// Empty where there is none.
std::string DenseNote(const std::vector<std::string>& names);

int64_t KeptOf(const std::vector<Json>& layers);
int64_t WeightsOf(const std::vector<Json>& layers);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_MODEL_MODEL_REPORT_H_
