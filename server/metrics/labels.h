// The values that labels can take: fixed sets, so that nobody outside can make
// the number of time series grow.
#ifndef SPARSEFW_SERVER_METRICS_LABELS_H_
#define SPARSEFW_SERVER_METRICS_LABELS_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

inline constexpr std::string_view kOther = "other";

// Every RPC of sparsefw.v1, then kOther.
inline constexpr std::array<std::string_view, 21> kRpcMethods = {
    "TensorService/CreateUpload", "TensorService/WriteTensor",    "TensorService/AccumulateGram",
    "TensorService/SumGrams",     "TensorService/GetUpload",      "TensorService/DeleteUpload",
    "TensorService/ListUploads",  "TensorService/GetTensor",      "TensorService/ListTensors",
    "TensorService/DeleteTensor", "TensorService/ReadTensor",     "PruneService/CreateJob",
    "PruneService/GetJob",        "PruneService/ListJobs",        "PruneService/DeleteJob",
    "PruneService/WatchJob",      "PruneService/CancelJob",       "PruneService/Prune",
    "PruneService/GetServerInfo", "PruneService/CheckJobOptions", kOther,
};
size_t RpcMethodIndex(std::string_view method);

// "INVALID_ARGUMENT"; "UNKNOWN" for a code that gRPC does not have.
std::string CodeName(absl::StatusCode code);

// A reason of its own series (ReasonKind::kSeries), or kOther.
std::string_view ReasonLabel(std::string_view reason);

// "cpu", "cuda", ...: without the number of the device.
std::string_view DeviceLabel(std::string_view device);
// Its reason where that has a series, else its code.
std::string ErrorLabel(const absl::Status& error);
// Why an ended job ended: how its solve stopped ("ITERATIONS"), "CANCELLED",
// or of a failure the reason, and where that has none or a new one, the code.
std::string EndReasonLabel(const Job& job);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_LABELS_H_
