// Deletions that a power failure takes back in part.
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/tensors/durable_fixture.h"
#include "tests/testing/hang.h"

namespace sparsefw::server {
namespace {

// Keeps the files whose new names are not on the disk yet, under the names that are.
class ForgetfulSpool final : public Spool {
 public:
  ForgetfulSpool(std::shared_ptr<Spool> spool, std::string folder, std::string kept)
      : spool_(std::move(spool)), folder_(std::move(folder)), kept_(std::move(kept)) {
    SyncNames();
  }

  void Release(std::string_view id) override {
    const std::string name = "/" + std::string(id) + ".tensor";
    std::filesystem::create_hard_link(folder_ + name, kept_ + name);
    spool_->Release(id);
  }
  void SyncNames() override {
    std::filesystem::remove_all(kept_);
    std::filesystem::create_directory(kept_);
  }

  absl::StatusOr<std::unique_ptr<SpoolFile>> Create(std::string_view id, int64_t size) override {
    return spool_->Create(id, size);
  }
  absl::StatusOr<std::unique_ptr<SpoolFile>> Adopt(std::string_view id, int64_t size) override {
    return spool_->Adopt(id, size);
  }
  absl::StatusOr<std::vector<SpoolEntry>> List() const override { return spool_->List(); }
  absl::StatusOr<std::string> Owner() const override { return spool_->Owner(); }
  absl::Status SetOwner(std::string_view store) override { return spool_->SetOwner(store); }
  absl::Status Remove(std::string_view id) override { return spool_->Remove(id); }
  void MarkDeleted(std::string_view id) override { spool_->MarkDeleted(id); }
  void UnmarkDeleted(std::string_view id) override { spool_->UnmarkDeleted(id); }

 private:
  const std::shared_ptr<Spool> spool_;
  const std::string folder_;
  const std::string kept_;
};

class PowerLossTest : public DurableFixture {
 protected:
  static constexpr int kMany = 100;  // more than a start removes without a question

  void SetUp() override {
    DurableFixture::SetUp();
    store_.reset();
    auto spool = OpenSpoolFolder(options_.spool_dir);
    ASSERT_THAT(spool, IsOk());
    OpenStoreOver(std::make_shared<ForgetfulSpool>(*std::move(spool), options_.spool_dir, kept_));
  }
  // The next store finds the names that were on the disk.
  void LosePower() {
    std::filesystem::copy(kept_, options_.spool_dir,
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    for (const auto& entry : std::filesystem::directory_iterator(kept_)) {
      const std::string id = entry.path().stem();
      std::filesystem::remove(options_.spool_dir + "/" + id + ".part");
    }
    Kill();
  }

  const std::string kept_ = folder_.File("kept");
};

TEST_F(PowerLossTest, ManyDeletedTensorsDoNotRefuseTheStart) {
  const std::string left = NewTensor("ab").name;
  for (int i = 0; i < kMany; ++i) {
    SPARSEFW_ASSERT_OK(
        store_->Put(WeightOf(2), BytesOf("ab"), {}, absl::InfiniteFuture(), nullptr, "jobs/1"));
  }
  EXPECT_EQ(store_->DeleteResultsOf("jobs/1"), kMany);
  LosePower();
  ASSERT_NE(store_, nullptr);
  EXPECT_EQ(Read(left), "ab");
  EXPECT_EQ(store_->usage().tensors, 1);
}

TEST_F(PowerLossTest, ManyDeletedUploadsDoNotRefuseTheStart) {
  std::vector<std::string> names;
  for (int i = 0; i < kMany; ++i) names.push_back(NewUpload(WeightOf(2)).name);
  for (const std::string& name : names) SPARSEFW_ASSERT_OK(store_->DeleteUpload(name));
  LosePower();
  ASSERT_NE(store_, nullptr);
  EXPECT_EQ(store_->usage().uploads, 0);
}

// Files of an earlier process are read before they are used: who waits for that.
using DurableChecksTest = DurableFixture;

// As long as somebody else reads the file.
TEST_F(DurableChecksTest, WhoWaitsForACheckCanBeStopped) {
  const TensorInfo tensor = NewTensor("abcdef");
  faults_->StopReading();
  Kill();
  faults_->AwaitStopped(1);  // the check in the background
  StopSignal stop;
  std::thread user([&] {
    EXPECT_THAT(store_->Acquire(tensor.name, &stop), StatusIs(absl::StatusCode::kCancelled));
  });
  stop.Request();
  user.join();
  faults_->Go();
  EXPECT_EQ(Read(tensor.name), "abcdef");
}

TEST_F(DurableChecksTest, RoomOfWhatIsDeletedBeforeItsCheckIsFree) {
  const TensorInfo first = NewTensor("abcdef");
  const TensorInfo second = NewTensor("ghijkl");
  faults_->StopReading();
  Kill();
  faults_->AwaitStopped(1);
  const int64_t before = store_->usage().used_bytes;
  EXPECT_THAT(store_->DeleteTensor(first.name), IsOk());
  EXPECT_THAT(store_->DeleteTensor(second.name), IsOk());
  EXPECT_LE(store_->usage().used_bytes, before - 6) << "all but the one that is being read";
  faults_->Go();
  EXPECT_TRUE(Eventually([&] { return store_->usage().unchecked == 0; }));
  EXPECT_TRUE(Eventually([&] { return store_->usage().used_bytes == 0; }));
  EXPECT_THAT(Incidents(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace sparsefw::server
