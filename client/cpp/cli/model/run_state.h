// What a run over a model has done so far, in a folder: it goes on from there after any end.
#ifndef SPARSEFW_CLIENT_CLI_MODEL_RUN_STATE_H_
#define SPARSEFW_CLIENT_CLI_MODEL_RUN_STATE_H_

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cli/model/files.h"

namespace sparsefw::cli {

// A finished layer.
struct LayerRecord {
  bool has_weight = false;      // else a mask, as it travels
  std::vector<std::byte> data;  // of either
  Json facts;                   // name, checksums of the inputs, result
};

// One process at a time. A layer counts as finished when its record is there and the checksum in it
// is that of its data. Thread-safe for different layers.
class RunState {
 public:
  // Begins the run, or opens it. Errors (exit code 2): the folder is of another run, and what
  // differs first; another process is at it; the folder holds other things.
  static absl::StatusOr<std::unique_ptr<RunState>> Open(const std::filesystem::path& folder,
                                                        const Json& facts);
  ~RunState();
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  // The same for every process of this run; in the request ids of its calls.
  const std::string& run_id() const { return run_id_; }

  absl::StatusOr<std::optional<LayerRecord>> Find(size_t layer) const;
  absl::Status Keep(size_t layer, const LayerRecord& record) const;

 private:
  RunState(std::filesystem::path folder, int lock);
  std::filesystem::path Path(size_t layer, const char* extension) const;

  const std::filesystem::path folder_;
  const int lock_;
  std::string run_id_;
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_MODEL_RUN_STATE_H_
