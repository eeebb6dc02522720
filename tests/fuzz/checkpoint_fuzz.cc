// Checkpoints: any bytes, or those of a real one with some of them changed and a checksum that
// fits. A solve refuses them, or goes on to its end.
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/src/solver/checkpoint_file.h"
#include "sparsefw/backend.h"
#include "sparsefw/checkpoint.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/solver.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/random_layers.h"

namespace {

using namespace sparsefw;  // NOLINT: one file
using Bytes = std::vector<std::byte>;

class FirstCheckpoint final : public CheckpointSink {
 public:
  bool Due(const CheckpointTiming& /*timing*/) override { return bytes_.empty(); }
  absl::Status Begin(const CheckpointInfo& /*info*/) override { return absl::OkStatus(); }
  absl::Status Write(std::span<const std::byte> piece) override {
    bytes_.insert(bytes_.end(), piece.begin(), piece.end());
    return absl::OkStatus();
  }
  absl::Status Commit() override { return absl::OkStatus(); }
  void Abandon() override { bytes_.clear(); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

struct Run {
  explicit Run(const char* engine) : backend(*FindBackend(engine)) {
    problem.weights = layer.weights.view();
    problem.gram = layer.gram.view();
    problem.pattern = Pattern::PerRow(0.5);
    options.alpha = 0.5;
    options.iterations = 12;
    options.report_every = 4;
    options.threads = 1;
    FirstCheckpoint sink;
    fuzz::Require(Solve(problem, options, *backend, nullptr, nullptr, {&sink, {}}).ok(),
                  "the layer can be pruned");
    good = sink.bytes();
    fuzz::Require(!good.empty(), "there was a checkpoint");
  }

  testing::RandomLayer layer = testing::MakeRandomLayer({.rows = 4, .cols = 12, .seed = 2});
  Problem problem;
  SolveOptions options;
  const Backend* backend;
  Bytes good;
};

void RepairChecksum(Bytes& bytes) {
  if (bytes.size() < sizeof(uint32_t)) return;
  const size_t end = bytes.size() - sizeof(uint32_t);
  const uint32_t crc = Crc32c(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &crc, sizeof(crc));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::array<Run, 2> runs = {Run("cpu"), Run("reference")};
  fuzz::Input input(data, size);
  const unsigned mode = input.Byte();
  const Run& run = runs[mode % 2];
  Bytes bytes;
  if ((mode & 2U) != 0) {
    const auto rest = std::as_bytes(std::span(input.Text(size)));
    bytes.assign(rest.begin(), rest.end());
  } else {
    bytes = run.good;
    while (!input.empty()) {
      const size_t at = input.Short() % bytes.size();
      bytes[at] = static_cast<std::byte>(input.Byte());
    }
    RepairChecksum(bytes);
  }
  if (bytes.empty()) return 0;  // nothing to resume from
  // Whoever writes a state with the right checksum may ask for any number of steps.
  SolveOptions options = run.options;
  options.deadline = absl::Now() + absl::Milliseconds(100);
  const auto result = Solve(run.problem, options, *run.backend, nullptr, nullptr, {nullptr, bytes});
  if (result.ok()) {
    fuzz::Require(result->mask.rows() == run.problem.weights.rows(), "a result has its shape");
  }
  return 0;
}
