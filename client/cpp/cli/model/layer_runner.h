// Prunes the layers of a model on a server, several at a time.
#ifndef SPARSEFW_CLIENT_CLI_MODEL_LAYER_RUNNER_H_
#define SPARSEFW_CLIENT_CLI_MODEL_LAYER_RUNNER_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cli/model/layers.h"
#include "client/cpp/cli/model/run_state.h"
#include "sparsefw/client/client.h"
#include "sparsefw/mutex.h"

namespace sparsefw::cli {

// Whether the job makes weights of its own; else its mask is enough.
bool MakesWeights(const v1::JobSpec& spec);

// What the server would refuse of the layers' jobs, before anything is kept or sent. Errors name
// the layer, but for those of the options, which all layers share.
absl::Status CheckJobs(client::Client& client, const ModelLayers& model, const v1::JobSpec& spec);

// Errors name the layer. After the first one, or a stop, no layer is begun any more, those under
// way are left to the server, and the same run finds their uploads and jobs there by their request
// ids.
class LayerRunner {
 public:
  // Told of every layer that is finished, by one thread at a time: its index, its record, whether
  // an earlier run has done it, and how long it took.
  using OnDone = std::function<void(size_t layer, const LayerRecord& record, bool before,
                                    absl::Duration time)>;

  // All must outlive it.
  LayerRunner(client::Client& client, const ModelLayers& model, const v1::JobSpec& spec,
              const RunState& state, const OnDone& on_done);

  // Every layer that is not finished, `in_flight` at a time.
  absl::Status Run(int in_flight, std::stop_source& stop);

 private:
  // On the server, from the first layer that needs it to the last.
  struct Gram {
    Mutex mutex;  // held while it is uploaded: one upload, whoever comes first
    std::string name ABSL_GUARDED_BY(mutex);
    size_t left ABSL_GUARDED_BY(mutex) = 0;  // layers that still need it
  };
  using UploadCall = std::function<absl::StatusOr<v1::Tensor>()>;

  void Work(std::stop_source& stop);
  absl::Status RunLayer(size_t index, const client::CallOptions& call);
  absl::StatusOr<LayerRecord> Prune(size_t index, const client::CallOptions& call,
                                    std::vector<std::string>& made);
  absl::StatusOr<v1::Job> Create(size_t index, const v1::JobSpec& spec,
                                 const client::CallOptions& call);
  absl::StatusOr<LayerRecord> Fetch(const ModelLayer& layer, const v1::Job& job,
                                    const client::CallOptions& call);
  absl::StatusOr<std::string> Upload(const UploadCall& upload);
  absl::StatusOr<std::string> GramName(size_t gram, const client::CallOptions& call);
  void LetGo(size_t gram);
  std::string RequestId(const std::string& what, size_t number) const;

  client::Client& client_;
  const ModelLayers& model_;
  const v1::JobSpec& spec_;
  const RunState& state_;
  const OnDone& on_done_;

  Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int at_work_ ABSL_GUARDED_BY(mutex_) = 0;  // jobs that were accepted and have not ended
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  Mutex report_;
  std::vector<std::unique_ptr<Gram>> grams_;
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_MODEL_LAYER_RUNNER_H_
