// A tensor store whose tensors survive, and ways to end it.
#ifndef SPARSEFW_TESTS_SERVER_TENSORS_DURABLE_FIXTURE_H_
#define SPARSEFW_TESTS_SERVER_TENSORS_DURABLE_FIXTURE_H_

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "tests/server/tensors/faulty_spool.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {

// Another catalog that fails when the test says so.
class FaultyCatalog final : public TensorCatalog {
 public:
  explicit FaultyCatalog(std::unique_ptr<TensorCatalog> catalog) : catalog_(std::move(catalog)) {}

  void Fail(absl::Status status) {
    MutexLock lock(mutex_);
    failure_ = std::move(status);
  }
  int writes() const {
    MutexLock lock(mutex_);
    return writes_;
  }

  bool durable() const override { return catalog_->durable(); }
  absl::StatusOr<Contents> Load() override { return catalog_->Load(); }
  absl::StatusOr<int64_t> Insert(const TensorRecord& record) override {
    if (absl::Status status = OnWrite(); !status.ok()) return status;
    return catalog_->Insert(record);
  }
  absl::Status Commit(std::string_view id, const UploadProgress& progress) override {
    if (absl::Status status = OnWrite(); !status.ok()) return status;
    return catalog_->Commit(id, progress);
  }
  absl::Status Delete(std::span<const std::string> ids) override {
    if (absl::Status status = OnWrite(); !status.ok()) return status;
    return catalog_->Delete(ids);
  }
  absl::Status SetUseTimes(std::span<const Use> uses) override {
    if (absl::Status status = OnWrite(); !status.ok()) return status;
    return catalog_->SetUseTimes(uses);
  }

 private:
  absl::Status OnWrite() {
    MutexLock lock(mutex_);
    ++writes_;
    return failure_;
  }

  const std::unique_ptr<TensorCatalog> catalog_;
  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
};

inline absl::Status StoreFull() {
  return WithReason(absl::ResourceExhaustedError("the disk of the store is full"), "STORE_FULL");
}

class DurableFixture : public StoreFixture {
 protected:
  ~DurableFixture() override { store_.reset(); }
  void SetUp() override {
    options_.on_incident = [this](const StoreIncident& incident) {
      MutexLock lock(incidents_mutex_);
      incidents_.push_back(std::string(incident.kind) + " " + incident.name);
    };
    Start(dir_);
  }

  // A store over the files in `dir`, once the one before has ended in order.
  void Start(const std::string& dir) {
    store_.reset();
    catalog_.reset();
    database_.reset();
    incidents_.clear();
    dir_ = dir;
    std::filesystem::create_directories(dir_);
    options_.spool_dir = dir_ + "/spool";
    auto database = Database::Open(dir_ + "/sparsefw.db");
    ASSERT_THAT(database, IsOk());
    database_ = *std::move(database);
    catalog_ = std::make_unique<FaultyCatalog>(NewSqliteTensorCatalog(database_.get()));
    options_.catalog = catalog_.get();
    auto spool = OpenSpoolFolder(options_.spool_dir);
    ASSERT_THAT(spool, IsOk());
    OpenStoreOver(std::make_shared<FaultySpool>(*std::move(spool), faults_));
  }
  void Restart() { Start(dir_); }
  // A killed process leaves what lies on the disk now: the next store runs on
  // a copy of that, so that the end of this one changes nothing.
  void Kill() {
    const std::string copy = folder_.File("killed" + std::to_string(++kills_));
    std::filesystem::copy(dir_, copy, std::filesystem::copy_options::recursive);
    Start(copy);
  }

  std::string FileOf(const std::string& name) const {
    return options_.spool_dir + "/" + name.substr(name.find('/') + 1) + ".tensor";
  }
  size_t MarkedAsDeleted() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(options_.spool_dir)) {
      if (entry.path().extension() == ".deleted") ++count;
    }
    return count;
  }
  // Flips a bit of a file that no store has open.
  static void Flip(const std::string& file, int64_t at) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(at);
    const int byte = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(stream.flush().good());
  }
  std::vector<std::string> Incidents() {
    MutexLock lock(incidents_mutex_);
    return incidents_;
  }

  std::string dir_ = folder_.File("state");
  int kills_ = 0;
  std::unique_ptr<Database> database_;
  std::unique_ptr<FaultyCatalog> catalog_;
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  Mutex incidents_mutex_;
  std::vector<std::string> incidents_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_TENSORS_DURABLE_FIXTURE_H_
