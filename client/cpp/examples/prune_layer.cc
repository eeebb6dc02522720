// Prunes one small layer with random values: prune_layer HOST:PORT
#include <cstdio>
#include <random>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "sparsefw/client/client.h"
#include "sparsefw/client/printable.h"

namespace {

namespace v1 = sparsefw::v1;
using sparsefw::DType;
using sparsefw::client::ActivationSpec;
using sparsefw::client::Client;
using sparsefw::client::WeightSpec;

std::vector<float> RandomValues(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

absl::StatusOr<v1::Job> PruneLayer(const char* address) {
  constexpr int64_t kOut = 96;
  constexpr int64_t kIn = 128;
  constexpr int64_t kTokens = 512;
  const std::vector<float> weight_values = RandomValues(kOut * kIn, 1);
  const std::vector<float> activations = RandomValues(kTokens * kIn, 2);

  auto client = Client::Connect(address);
  if (!client.ok()) return client.status();
  auto weight = (*client)->UploadTensor(WeightSpec(DType::kF32, kOut, kIn),
                                        std::as_bytes(std::span(weight_values)));
  if (!weight.ok()) return weight.status();
  auto gram = (*client)->UploadGramFromActivations(ActivationSpec(DType::kF32, kIn),
                                                   std::as_bytes(std::span(activations)));
  if (!gram.ok()) return gram.status();

  v1::JobSpec spec;
  spec.set_weight(weight->name());
  spec.set_gram(gram->name());
  spec.set_method(v1::METHOD_SPARSEFW);
  spec.mutable_pattern()->mutable_per_row()->set_sparsity(0.6);
  spec.mutable_sparsefw()->set_iterations(200);
  auto job = (*client)->CreateJob(spec);
  if (!job.ok()) return job.status();
  job = (*client)->WaitJob(job->name(), [](const v1::JobEvent& event) {
    std::fprintf(stderr, "iteration %lld\n",
                 static_cast<long long>(event.job().progress().iteration()));
  });
  if (!job.ok()) return job.status();
  if (job->state() != v1::JOB_STATE_SUCCEEDED) {
    return absl::AbortedError(sparsefw::client::Printable(job->error().message()));
  }

  auto mask = (*client)->ReadTensor(job->result().mask());  // one bit a weight, 1 = keep
  if (!mask.ok()) return mask.status();
  return job;
}

}  // namespace

int main(int argc, char** argv) {
  const auto job = PruneLayer(argc > 1 ? argv[1] : "127.0.0.1:50051");
  if (!job.ok()) {
    std::fprintf(stderr, "prune_layer: %s\n", job.status().ToString().c_str());
    return 1;
  }
  std::printf("%s kept %lld weights, loss %.6g (warm start %.6g)\n", job->name().c_str(),
              static_cast<long long>(job->result().kept_count()), job->result().losses().mask(),
              job->result().losses().warm_start());
  return std::fflush(stdout) == 0 ? 0 : 1;
}
