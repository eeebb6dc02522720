#include "client/cpp/cli/model/run_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/random/random.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "run.json";
constexpr char kLock[] = "lock";

// The first place at which they differ: "/settings/method was ..., is ...".
std::string Difference(const Json& there, const Json& here) {
  const Json patch = Json::diff(there, here);
  if (patch.empty()) return "";
  const std::string path = patch[0].value("path", "");
  const Json::json_pointer pointer(path);
  const auto text = [&pointer](const Json& json) {
    return json.contains(pointer) ? json.at(pointer).dump() : std::string("nothing");
  };
  return absl::StrFormat("%s was %s, is %s", path, text(there), text(here));
}

}  // namespace

RunState::RunState(fs::path folder, int lock) : folder_(std::move(folder)), lock_(lock) {}

RunState::~RunState() { close(lock_); }

absl::StatusOr<std::unique_ptr<RunState>> RunState::Open(const fs::path& folder,
                                                         const Json& facts) {
  std::error_code error;
  const fs::path manifest = folder / kManifest;
  const bool there = fs::exists(manifest, error);
  // A process that was killed at its very beginning leaves the lock alone.
  const bool others = fs::exists(folder, error) && !fs::is_empty(folder, error) &&
                      !fs::exists(folder / kLock, error);
  if (!there && others) {
    return FileError(
        absl::StrFormat("--state-dir: %s holds other things than a run", folder.string()));
  }
  fs::create_directories(folder, error);
  if (error) return PathError(folder, "made", error.value());
  const int lock = open((folder / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0) return PathError(folder / kLock, "opened", errno);
  std::unique_ptr<RunState> state(new RunState(folder, lock));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return FileError(
        absl::StrFormat("--state-dir: another process is at the run in %s", folder.string()));
  }
  Json run;
  if (there) {
    SPARSEFW_ASSIGN_OR_RETURN(run, ReadJsonFile(manifest));
    const std::string difference = Difference(run.value("facts", Json()), facts);
    if (!difference.empty()) {
      return FileError(
          absl::StrFormat("--state-dir: %s is of another run: %s", folder.string(), difference));
    }
  } else {
    run["id"] = absl::StrFormat("%016x", absl::Uniform<uint64_t>(absl::BitGen()));
    run["facts"] = facts;
    SPARSEFW_RETURN_IF_ERROR(WriteJsonFile(manifest, run));
  }
  state->run_id_ = run.value("id", "");
  return state;
}

fs::path RunState::Path(size_t layer, const char* extension) const {
  return folder_ / absl::StrFormat("layer.%05d.%s", layer, extension);
}

absl::StatusOr<std::optional<LayerRecord>> RunState::Find(size_t layer) const {
  const fs::path path = Path(layer, "json");
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  SPARSEFW_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  LayerRecord record;
  record.has_weight = json.value("kind", "") == "weight";
  record.facts = json.value("facts", Json::object());
  SPARSEFW_ASSIGN_OR_RETURN(record.data, ReadWholeFile(Path(layer, "data")));
  // A disk that lost what it had acknowledged: the layer is pruned again.
  if (Crc32c(record.data) != json.value("crc32c", int64_t{-1})) return std::nullopt;
  return record;
}

absl::Status RunState::Keep(size_t layer, const LayerRecord& record) const {
  SPARSEFW_RETURN_IF_ERROR(WriteWholeFile(Path(layer, "data"), record.data));
  // The record comes last: with it the layer is finished.
  return WriteJsonFile(Path(layer, "json"), Json{{"kind", record.has_weight ? "weight" : "mask"},
                                                 {"crc32c", Crc32c(record.data)},
                                                 {"facts", record.facts}});
}

}  // namespace sparsefw::cli
