// The catalogs of tensors, in SQLite and in memory.
#include "server/tensors/catalog/tensor_catalog.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;

class TensorCatalogTest : public ::testing::Test {
 protected:
  TensorCatalogTest() { Open(); }

  // Opens the catalog anew, as the next process does.
  void Open() {
    catalog_.reset();
    database_.reset();
    auto database = Database::Open(folder_.File("sparsefw.db"));
    ASSERT_THAT(database, IsOk());
    database_ = *std::move(database);
    catalog_ = NewSqliteTensorCatalog(database_.get());
  }
  std::vector<TensorRecord> Records() {
    Open();
    auto contents = catalog_->Load();
    EXPECT_THAT(contents, IsOk());
    return contents.ok() ? contents->records : std::vector<TensorRecord>();
  }

  testing::TempFolder folder_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<TensorCatalog> catalog_;
};

TensorRecord Upload(const std::string& id) {
  TensorRecord record;
  record.id = id;
  record.owner = {"acme", "alice"};
  record.from_upload = true;
  record.spec = {TensorKind::kWeight, DType::kF16, 3, 5, 0};
  record.create_time = record.use_time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  return record;
}

TEST_F(TensorCatalogTest, BeginsEmptyAndLasts) {
  EXPECT_TRUE(catalog_->durable());
  EXPECT_TRUE(Records().empty());
}

TEST_F(TensorCatalogTest, KeepsEveryField) {
  TensorRecord gram = Upload("a");
  gram.request_id = "request 'quoted' \n";
  gram.fingerprint = std::string("\0'\xff", 3);
  gram.owner.name = "";
  gram.spec = {TensorKind::kGram, DType::kF64, 7, 7, 0};
  gram.gram = GramSpec{7, DType::kBF16, DType::kF64};
  TensorRecord result = Upload("b");
  result.from_upload = false;
  result.transient = true;
  result.job = "jobs/1";
  result.spec = {TensorKind::kMask, DType::kBool, int64_t{1} << 40, 9, 0};
  result.complete = true;
  result.progress = {int64_t{1} << 41, 0xffffffff, ""};
  result.use_time += absl::Nanoseconds(1);
  result.expire_time = result.create_time + absl::Hours(1);
  gram.number = *catalog_->Insert(gram);
  result.number = *catalog_->Insert(result);
  EXPECT_LT(gram.number, result.number);
  EXPECT_EQ(Records(), (std::vector<TensorRecord>{gram, result}));
}

TEST_F(TensorCatalogTest, CommitsProgress) {
  TensorRecord upload = Upload("a");
  upload.number = *catalog_->Insert(upload);
  SPARSEFW_ASSERT_OK(catalog_->Commit("a", {12, 0x89abcdef, ""}));
  SPARSEFW_ASSERT_OK(catalog_->Commit("a", {20, 3, "sums"}));
  SPARSEFW_ASSERT_OK(catalog_->Commit("unknown", {20, 3, "sums"}));
  upload.progress = {20, 3, "sums"};
  EXPECT_EQ(Records(), std::vector<TensorRecord>{upload});
}

TEST_F(TensorCatalogTest, AnUploadBecomesATensorWithAnotherNumber) {
  TensorRecord first = Upload("a");
  first.request_id = "r";
  first.number = *catalog_->Insert(first);
  const int64_t second = *catalog_->Insert(Upload("b"));
  first.complete = true;
  first.progress = {30, 7, ""};
  const int64_t number = *catalog_->Insert(first);
  EXPECT_GT(number, second);
  first.number = number;
  EXPECT_EQ(Records()[1], first);
  EXPECT_EQ(Records().size(), 2U);
  SPARSEFW_ASSERT_OK(catalog_->Commit("a", {1, 1, ""}));
  EXPECT_EQ(Records()[1], first) << "a complete tensor has no progress";
  // One that was never inserted: the upload of a single stream.
  EXPECT_GT(*catalog_->Insert(Upload("c")), number);
  EXPECT_EQ(Records().size(), 3U);
}

TEST_F(TensorCatalogTest, NumbersAreNeverGivenAgain) {
  int64_t last = 0;
  for (int round = 0; round < 5; ++round) {
    const int64_t number = *catalog_->Insert(Upload("a"));
    EXPECT_GT(number, last);
    last = number;
    SPARSEFW_ASSERT_OK(catalog_->Delete(std::vector<std::string>{"a", "unknown"}));
    EXPECT_TRUE(Records().empty());
  }
}

TEST_F(TensorCatalogTest, ARequestIdBelongsToATenantAndToItsLastRecord) {
  TensorRecord mine = Upload("a");
  mine.request_id = "r";
  TensorRecord theirs = Upload("b");
  theirs.request_id = "r";
  theirs.owner.tenant = "other";
  SPARSEFW_ASSERT_OK(catalog_->Insert(mine));
  SPARSEFW_ASSERT_OK(catalog_->Insert(theirs));
  EXPECT_EQ(Records().size(), 2U);
  TensorRecord next = mine;
  next.id = "c";
  SPARSEFW_ASSERT_OK(catalog_->Insert(next));
  std::vector<std::string> ids;
  for (const TensorRecord& record : Records()) ids.push_back(record.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"b", "c"}));
}

TEST_F(TensorCatalogTest, ARecordReplacesThatOfItsIdAndThatOfItsRequestId) {
  TensorRecord first = Upload("a");
  SPARSEFW_ASSERT_OK(catalog_->Insert(first));
  TensorRecord second = Upload("b");
  second.request_id = "r";
  const int64_t number = *catalog_->Insert(second);
  first.request_id = "r";
  first.complete = true;
  first.number = *catalog_->Insert(first);
  EXPECT_GT(first.number, number);
  EXPECT_EQ(Records(), std::vector<TensorRecord>{first});
}

TEST_F(TensorCatalogTest, RemembersUses) {
  SPARSEFW_ASSERT_OK(catalog_->Insert(Upload("a")));
  SPARSEFW_ASSERT_OK(catalog_->Insert(Upload("b")));
  const absl::Time later = absl::FromUnixSeconds(1'800'000'000);
  SPARSEFW_ASSERT_OK(
      catalog_->SetUseTimes(std::vector<TensorCatalog::Use>{{"b", later}, {"unknown", later}}));
  EXPECT_EQ(Records()[0].use_time, Upload("a").use_time);
  EXPECT_EQ(Records()[1].use_time, later);
}

TEST_F(TensorCatalogTest, TheSaltStays) {
  const std::string salt = catalog_->Load()->salt;
  EXPECT_GE(salt.size(), 32U);
  Open();
  EXPECT_EQ(catalog_->Load()->salt, salt);
}

TEST(MemoryTensorCatalogTest, GivesNumbersAndKeepsNothing) {
  const std::unique_ptr<TensorCatalog> catalog = NewMemoryTensorCatalog();
  EXPECT_FALSE(catalog->durable());
  const int64_t first = *catalog->Insert(Upload("a"));
  EXPECT_GT(*catalog->Insert(Upload("a")), first);
  EXPECT_TRUE(catalog->Load()->records.empty());
}

}  // namespace
}  // namespace sparsefw::server
