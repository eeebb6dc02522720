// A client of the pruning server: tensors up, jobs, masks down.
//
//   auto client = sparsefw::client::Client::Connect("127.0.0.1:50051");
//   if (!client.ok()) return client.status();
//   auto weight = (*client)->UploadTensor(WeightSpec(DType::kF16, d_out, d_in), weight_bytes);
//   if (!weight.ok()) return weight.status();
//   auto gram = (*client)->UploadGramFromActivations(ActivationSpec(DType::kF16, d_in), x_bytes);
//   if (!gram.ok()) return gram.status();
//   v1::JobSpec spec;
//   spec.set_weight(weight->name());
//   spec.set_gram(gram->name());
//   spec.set_method(v1::METHOD_SPARSEFW);
//   spec.mutable_pattern()->mutable_per_row()->set_sparsity(0.6);
//   auto job = (*client)->CreateJob(spec);
//   if (!job.ok()) return job.status();
//   job = (*client)->WaitJob(job->name());
//   if (!job.ok()) return job.status();
//   auto mask = (*client)->ReadTensor(job->result().mask());
//
// client/cpp/examples/prune_layer.cc is this as a whole program.
#ifndef SPARSEFW_CLIENT_CLIENT_H_
#define SPARSEFW_CLIENT_CLIENT_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/client/options.h"
#include "sparsefw/client/tensor_spec.h"
#include "sparsefw/v1/job.pb.h"
#include "sparsefw/v1/prune_service.pb.h"
#include "sparsefw/v1/tensor.pb.h"

namespace sparsefw::client {

namespace internal {
class Rpc;
}

struct TensorData {
  v1::Tensor tensor;
  std::vector<std::byte> bytes;
};

// The input of the one-call form. The spec's tensor names stay empty; the Gram
// comes either as itself or as activations (set the one, leave the other).
struct PruneInput {
  v1::JobSpec spec;
  v1::TensorSpec weight;
  std::span<const std::byte> weight_bytes;
  v1::TensorSpec gram;
  std::span<const std::byte> gram_bytes;
  v1::GramSpec activations;
  std::span<const std::byte> activation_bytes;
  // The job goes on when the stream breaks or stop is requested.
  bool detach = false;
};

struct PruneOutput {
  v1::Job job;                           // in a terminal state
  std::vector<std::byte> mask;           // U1; empty if the job ended without one
  std::vector<std::byte> pruned_weight;  // empty unless the spec asked for it
};

struct ListJobsOptions {
  std::vector<v1::JobState> states;           // empty: all
  std::map<std::string, std::string> labels;  // all must match
  int64_t limit = 0;                          // 0: all
};

struct ListTensorsOptions {
  std::vector<v1::TensorKind> kinds;  // empty: all
  std::string owner;                  // as the uploader called itself; empty: all
  int64_t limit = 0;                  // 0: all
};

using JobCallback = std::function<void(const v1::JobEvent&)>;

// Holds two connections to an address, one for bulk data and one for control: on a shared
// one, small calls wait behind uploads. Thread-safe. Calls block; one that
// another thread should be able to end takes a stop token.
//
// Every call retries what is safe to retry (IsTransient in error.h), with the
// bounds of ClientOptions::retry. Errors carry the server's code, message and
// reason; those that the client makes itself are
//   Unavailable       not reached within connect_timeout (reason UNREACHABLE)
//   DeadlineExceeded  no answer within call_timeout
//   Cancelled         stop was requested, of a call or of connecting (STOPPED)
//   InvalidArgument   arguments that contradict each other (CLIENT_ARGUMENT)
//   DataLoss          bytes from the server that fail their checksum, again and
//                     again (CHECKSUM_MISMATCH)
//   Internal          answers that break the protocol (PROTOCOL): sizes that do not fit, chunks of
//                     no bytes, lists without an end
//   ResourceExhausted a tensor that does not fit into this machine's memory (CLIENT_MEMORY)
// Servers' messages in errors are Printable (printable.h); names in answers are as they came.
class Client {
 public:
  // `address`: "host:port", or any name gRPC understands ("unix:/path"); or several of them with
  // commas between, of which the first that can be reached is used. Once its connection is lost,
  // it is that one again or else the first that can be reached. Uploads begin anew on a server
  // that does not know them; jobs and tensors are known to the server that has them.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address,
                                                         ClientOptions options = {});
  ~Client();

  const std::string& address() const;

  // Sends a tensor in checksummed chunks. A broken stream goes on at the last
  // byte that the server committed; a server that forgot the upload gets it
  // from the start. The same `request_id` goes on with the same upload, or returns the tensor that
  // it became, also from a later process; empty: a fresh one, and an upload that fails is deleted.
  absl::StatusOr<v1::Tensor> UploadTensor(const v1::TensorSpec& spec,
                                          std::span<const std::byte> bytes,
                                          const TransferCallback& progress = {},
                                          const CallOptions& call = {},
                                          const std::string& request_id = {});

  // Sends activations [tokens, d_in] and has the server sum them into a Gram
  // matrix. Resumes as UploadTensor does, at whole tokens: none counts twice.
  absl::StatusOr<v1::Tensor> UploadGramFromActivations(const v1::GramSpec& spec,
                                                       std::span<const std::byte> activations,
                                                       const TransferCallback& progress = {},
                                                       const CallOptions& call = {},
                                                       const std::string& request_id = {});

  // The same of several batches, one after the other; each is whole tokens.
  absl::StatusOr<v1::Tensor> UploadGramFromBatches(
      const v1::GramSpec& spec, std::span<const std::span<const std::byte>> batches,
      const TransferCallback& progress = {}, const CallOptions& call = {},
      const std::string& request_id = {});

  // The sum of Gram matrices that are on the server, each named once; the parts stay. With the
  // same `request_id` the same tensor again, while the parts are there; empty: a fresh one.
  absl::StatusOr<v1::Tensor> SumGrams(std::span<const std::string> grams,
                                      v1::DataType gram_dtype = v1::DATA_TYPE_F32,
                                      const std::string& request_id = {},
                                      const CallOptions& call = {});

  // Every chunk's checksum and that of the whole are verified; a broken stream, and one on which
  // nothing has come for `watch_silence`, goes on at the last good byte. Fields of `expected` that
  // are set must be the tensor's (PROTOCOL), which is asked before memory is taken for it.
  absl::StatusOr<TensorData> ReadTensor(const std::string& name,
                                        const TransferCallback& progress = {},
                                        const CallOptions& call = {},
                                        const v1::TensorSpec& expected = {});

  absl::StatusOr<v1::Tensor> GetTensor(const std::string& name, const CallOptions& call = {});
  // Newest first.
  absl::StatusOr<std::vector<v1::Tensor>> ListTensors(const ListTensorsOptions& options = {},
                                                      const CallOptions& call = {});
  // Uploads that have not ended, newest first; at most `limit`, 0: all.
  absl::StatusOr<std::vector<v1::Upload>> ListUploads(int64_t limit = 0,
                                                      const CallOptions& call = {});
  absl::Status DeleteUpload(const std::string& name, const CallOptions& call = {});
  absl::Status DeleteTensor(const std::string& name, const CallOptions& call = {});

  // `request_id` makes it idempotent across processes; empty: a fresh one, so
  // that retries inside this call still create one job only.
  absl::StatusOr<v1::Job> CreateJob(const v1::JobSpec& spec, const std::string& request_id = {},
                                    const CallOptions& call = {});
  // Whether CreateJob would accept it.
  absl::Status ValidateJob(const v1::JobSpec& spec, const CallOptions& call = {});
  // Whether CreateJob would accept the spec, as far as can be known before its
  // tensors are uploaded; the request describes them. Unimplemented: an older
  // server, which does not know this call.
  absl::Status CheckJobOptions(const v1::CheckJobOptionsRequest& request,
                               const CallOptions& call = {});
  absl::StatusOr<v1::Job> GetJob(const std::string& name, const CallOptions& call = {});
  // Newest first.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const ListJobsOptions& options = {},
                                                const CallOptions& call = {});
  absl::StatusOr<v1::Job> CancelJob(const std::string& name, const CallOptions& call = {});
  absl::Status DeleteJob(const std::string& name, const CallOptions& call = {});

  // Follows the job until it has ended and returns it, whatever its state. A
  // watch that breaks or that the server ends is taken up again at the last
  // revision seen, also over a restart of the server; at the job as it is where the
  // server does not know that revision. Stopping never cancels the job. With `after_revision`, a
  // revision that was seen before, the events are every change of state since.
  absl::StatusOr<v1::Job> WaitJob(const std::string& name, const JobCallback& on_event = {},
                                  const CallOptions& call = {}, int64_t after_revision = 0);

  // One call for all of it, for small layers: nothing is resumed while the
  // tensors travel, so prefer the calls above beyond a few hundred MiB. With
  // `detach` a stream that breaks after the job was accepted is replaced by
  // WaitJob and ReadTensor; so is, without it, one that a draining server ends.
  absl::StatusOr<PruneOutput> Prune(const PruneInput& input, const JobCallback& on_event = {},
                                    const CallOptions& call = {});

  absl::StatusOr<v1::ServerInfo> GetServerInfo(const CallOptions& call = {});

 private:
  explicit Client(std::unique_ptr<internal::Rpc> rpc);
  std::unique_ptr<internal::Rpc> rpc_;
};

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_CLIENT_H_
