// A tensor store on files in memory that a fuzz target restarts and empties.
#ifndef SPARSEFW_TESTS_FUZZ_TEMPORARY_STORE_H_
#define SPARSEFW_TESTS_FUZZ_TEMPORARY_STORE_H_

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/backend.h"
#include "tests/fuzz/fuzz_target.h"

namespace sparsefw::fuzz {

// A folder of this process, empty at first, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    namespace fs = std::filesystem;
    const fs::path shared = "/dev/shm";
    path_ = (fs::exists(shared) ? shared : fs::temp_directory_path()) /
            ("sparsefw-fuzz-" + std::to_string(getpid()));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

class TemporaryStore {
 public:
  static constexpr int64_t kBudget = 64 << 10;

  explicit TemporaryStore(const TemporaryFolder& folder) : spool_(folder.File("spool")) { Open(); }

  server::TensorStore& operator*() const { return *store_; }
  server::TensorStore* get() const { return store_.get(); }

  // As after a kill: nothing is committed on the way out but what was before.
  void Restart() {
    store_.reset();
    Open();
  }

  void Pass(absl::Duration time) {
    now_ += time;
    store_->CollectGarbage();
  }

  // Deletes every tensor and lets every upload expire.
  void RequireEmptyInTheEnd() {
    Pass(absl::Hours(1));
    const auto page = store_->ListTensors(1000, "");
    Require(page.ok(), "tensors can be listed");
    for (const server::TensorInfo& tensor : page->tensors) {
      Require(store_->DeleteTensor(tensor.name).ok(), "a tensor that nobody holds can be deleted");
    }
    server::TensorStoreUsage usage = store_->usage();
    // The check that follows a restart may still hold a tensor that is gone.
    for (int i = 0; i < 5000 && usage.used_bytes != 0; ++i) {
      usleep(1000);
      usage = store_->usage();
    }
    Require(usage.uploads == 0 && usage.tensors == 0, "nothing is left");
    Require(usage.used_bytes == 0, "the budget is whole again");
    Require(usage.disk_used_bytes == 0, "so is that of the disk");
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(spool_)) {
      files += entry.path().extension() == ".tensor" ? 1 : 0;
    }
    Require(files == 0, "no file is left");
  }

 private:
  void Open() {
    server::TensorStoreOptions options;
    options.spool_dir = spool_;
    options.catalog = catalog_.get();
    options.budget_bytes = kBudget;
    options.disk_budget_bytes = 4 * kBudget;
    options.max_tensor_bytes = kBudget / 4;
    options.commit_interval_bytes = 100;
    options.upload_idle_ttl = absl::Minutes(10);
    options.gram_backend = *FindBackend("reference");
    options.gram_threads = 1;
    options.now = [this] { return now_; };
    // Both clocks go on together; their origins differ.
    options.steady_now = [this] { return absl::UnixEpoch() + (now_ - kFirst); };
    auto store = server::TensorStore::Open(std::move(options));
    Require(store.ok(), "the store opens");
    store_ = *std::move(store);
  }

  static constexpr absl::Time kFirst = absl::FromUnixSeconds(1'700'000'000);

  const std::string spool_;
  // Lives as long as the process, so that stores which follow one another recover from it.
  const std::unique_ptr<server::Database> database_ = server::Database::InMemory().value();
  const std::unique_ptr<server::TensorCatalog> catalog_ =
      server::NewSqliteTensorCatalog(database_.get());
  absl::Time now_ = kFirst;
  std::unique_ptr<server::TensorStore> store_;
};

}  // namespace sparsefw::fuzz

#endif  // SPARSEFW_TESTS_FUZZ_TEMPORARY_STORE_H_
