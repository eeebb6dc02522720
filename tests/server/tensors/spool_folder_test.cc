#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "server/identity/random_hex.h"
#include "server/tensors/spool/spool.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

const std::string kId = "0123456789abcdef0123456789abcdef";
const std::string kOtherId = "fedcba9876543210fedcba9876543210";

class SpoolFolderTest : public ::testing::Test {
 protected:
  testing::TempFolder folder_;
  const std::string path_ = folder_.File("spool");
};

TEST_F(SpoolFolderTest, WritesAndMaps) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto file, spool->Create(kId, 10));
  SPARSEFW_ASSERT_OK(file->Write(4, BytesOf("efghij")));
  SPARSEFW_ASSERT_OK(file->Write(0, BytesOf("abcd")));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const MappedBytes mapped, file->Map());
  EXPECT_EQ(TextOf(mapped.bytes()), "abcdefghij");
  file->Remove();
  file.reset();
  EXPECT_FALSE(std::filesystem::exists(path_ + "/" + kId + ".part"));
  EXPECT_EQ(TextOf(mapped.bytes()), "abcdefghij") << "a mapping outlives its file";
}

TEST_F(SpoolFolderTest, TakesItsRoomAtOnceAndKeepsNoDescriptor) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  std::vector<std::unique_ptr<SpoolFile>> files;
  for (int i = 0; i < 50; ++i) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const std::string id, RandomHex(kIdBytes));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(auto file, spool->Create(id, 100'000));
    SPARSEFW_ASSERT_OK(file->Write(0, BytesOf("x")));
    files.push_back(std::move(file));
    struct stat info = {};
    ASSERT_EQ(stat((path_ + "/" + id + ".part").c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 100'000);
    EXPECT_GE(info.st_blocks * 512, 100'000) << "blocks are taken";
    EXPECT_EQ(info.st_mode & 0777U, 0600U) << "for nobody else's eyes";
  }
  EXPECT_EQ(descriptors(), before);
}

TEST_F(SpoolFolderTest, MakesTheFolderAndItsParents) {
  const std::string deep = path_ + "/a/b/c/";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(deep));
  struct stat info = {};
  ASSERT_EQ(stat(deep.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST_F(SpoolFolderTest, BelongsToOneServer) {
  auto first = OpenSpoolFolder(path_);
  SPARSEFW_ASSERT_OK(first);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto file, (*first)->Create(kId, 4));
  EXPECT_THAT(OpenSpoolFolder(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "SPOOL_IN_USE", path_,
                       "process " + std::to_string(getpid())));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/" + kId + ".part"))
      << "the one that was refused must not clean up";
  *first = nullptr;
  EXPECT_THAT(OpenSpoolFolder(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "SPOOL_IN_USE"))
      << "a file still needs the folder";
  file.reset();
  SPARSEFW_EXPECT_OK(OpenSpoolFolder(path_));
}

TEST_F(SpoolFolderTest, FilesOutliveTheProcessUntilTheyAreRemoved) {
  {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(auto file, spool->Create(kId, 6));
    SPARSEFW_ASSERT_OK(file->Write(0, BytesOf("abcdef")));
    SPARSEFW_ASSERT_OK(file->Sync());
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto files, spool->List());
  EXPECT_EQ(files, (std::vector<SpoolEntry>{{kId, 6, SpoolEntry::Kind::kPart}}));
  EXPECT_THAT(spool->Adopt(kId, 7),
              StatusIs(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT", "must be 7 bytes; it has 6"));
  EXPECT_THAT(spool->Adopt(kOtherId, 6), StatusIs(absl::StatusCode::kNotFound));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, spool->Adopt(kId, 6));
  std::string text(3, ' ');
  SPARSEFW_ASSERT_OK(file->Read(2, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text, "cde");
  SPARSEFW_EXPECT_OK(file->Sync());
  EXPECT_THAT(file->Read(5, std::as_writable_bytes(std::span(text))),
              StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  SPARSEFW_EXPECT_OK(spool->Remove(kId));
  SPARSEFW_EXPECT_OK(spool->Remove(kId)) << "it is gone already";
  EXPECT_EQ(spool->List()->size(), 0U);
}

TEST_F(SpoolFolderTest, TouchesNoFileThatIsNotNamedByAnId) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  const std::string outside = path_ + ".tensor";
  testing::WriteFile(outside, "somebody else's");
  for (const std::string& id : {"../" + std::filesystem::path(path_).filename().string(),
                                std::string(), kId + "0", "/" + kId.substr(1)}) {
    const auto refused = StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED", "named by an id");
    EXPECT_THAT(spool->Create(id, 15), refused) << id;
    EXPECT_THAT(spool->Adopt(id, 15), refused) << id;
    EXPECT_THAT(spool->Remove(id), refused) << id;
  }
  EXPECT_TRUE(std::filesystem::remove(outside));
}

TEST_F(SpoolFolderTest, ListsItsOwnFilesAndNothingElse) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  testing::WriteFile(path_ + "/" + kId + ".tensor", "old");
  testing::WriteFile(path_ + "/lock", "99999\n");  // of a server that was killed
  testing::WriteFile(path_ + "/thesis.tex", "years of work");
  testing::WriteFile(path_ + "/" + kId + ".safetensors", "not ours");
  testing::WriteFile(path_ + "/model.tensor", "not ours");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  EXPECT_EQ(*spool->List(), (std::vector<SpoolEntry>{{kId, 3}}));
}

TEST_F(SpoolFolderTest, AFileIsAPartUntilItIsKept) {
  using Kind = SpoolEntry::Kind;
  const auto kind = [this](const Spool& spool) {
    const auto files = spool.List();
    EXPECT_EQ(files->size(), 1U) << path_;
    return files->empty() ? Kind::kDeleted : files->front().kind;
  };
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto file, spool->Create(kId, 6));
  EXPECT_EQ(kind(*spool), Kind::kPart);
  file->Keep();
  file->Keep();
  EXPECT_EQ(kind(*spool), Kind::kKept);
  SPARSEFW_EXPECT_OK(file->Write(0, BytesOf("abcdef"))) << "under its new name";
  spool->Release(kId);
  EXPECT_EQ(kind(*spool), Kind::kPart);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto again, spool->Adopt(kId, 6));
  EXPECT_EQ(TextOf(again->Map()->bytes()), "abcdef");
  again->Keep();
  EXPECT_EQ(kind(*spool), Kind::kKept);
  spool->Release(kId);
  again->Remove();
  EXPECT_EQ(spool->List()->size(), 0U) << "under whatever name";
  spool->Release(kId);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(file, spool->Create(kId, 6));
  SPARSEFW_EXPECT_OK(spool->Remove(kId));
  EXPECT_EQ(spool->List()->size(), 0U);
}

TEST_F(SpoolFolderTest, AMarkTellsOfADeletion) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  spool->MarkDeleted(kId);
  spool->MarkDeleted("../" + kId.substr(3));
  EXPECT_EQ(*spool->List(), (std::vector<SpoolEntry>{{kId, 0, SpoolEntry::Kind::kDeleted}}));
  SPARSEFW_EXPECT_OK(spool->Remove(kId));
  EXPECT_EQ(spool->List()->size(), 1U) << "it outlives the file";
  EXPECT_THAT(spool->Adopt(kId, 0), StatusIs(absl::StatusCode::kNotFound));
  spool->UnmarkDeleted(kId);
  EXPECT_EQ(spool->List()->size(), 0U);
}

TEST_F(SpoolFolderTest, RemembersWhoseItIs) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto spool, OpenSpoolFolder(path_));
  EXPECT_EQ(*spool->Owner(), "");
  SPARSEFW_ASSERT_OK(spool->SetOwner("one"));
  SPARSEFW_ASSERT_OK(spool->SetOwner("another"));
  spool.reset();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(spool, OpenSpoolFolder(path_));
  EXPECT_EQ(*spool->Owner(), "another");
  EXPECT_EQ(spool->List()->size(), 0U);
}

TEST_F(SpoolFolderTest, WhatIsNoFolderIsRefused) {
  testing::WriteFile(path_, "a file");
  EXPECT_THAT(OpenSpoolFolder(path_),
              StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED", path_, "opened as a folder"));
  EXPECT_THAT(OpenSpoolFolder(path_ + "/below"),
              StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED", path_ + "/below"));
  EXPECT_THAT(OpenSpoolFolder(""), StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID"));
}

TEST_F(SpoolFolderTest, FolderOfSomebodyElseIsPermissionDenied) {
  ASSERT_EQ(mkdir(path_.c_str(), 0555), 0);
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    ASSERT_EQ(seteuid(65534), 0);
  }
  const auto spool = OpenSpoolFolder(path_);
  const auto below = OpenSpoolFolder(path_ + "/below");
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(spool, StatusIs(absl::StatusCode::kPermissionDenied, "SPOOL_FAILED", path_));
  EXPECT_THAT(below, StatusIs(absl::StatusCode::kPermissionDenied, "SPOOL_FAILED", path_));
}

TEST_F(SpoolFolderTest, FilesThatSomebodyCutAreNotMapped) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, spool->Create(kId, 10));
  ASSERT_EQ(truncate((path_ + "/" + kId + ".part").c_str(), 3), 0);
  EXPECT_THAT(file->Map(), StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED",
                                    "must be 10 bytes; somebody made it 3"));
  ASSERT_EQ(unlink((path_ + "/" + kId + ".part").c_str()), 0);
  EXPECT_THAT(file->Map(), StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED", "opened"));
  EXPECT_THAT(file->Write(0, BytesOf("x")),
              StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED", "opened"));
}

TEST_F(SpoolFolderTest, TheSameIdTwiceIsRefused) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(path_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, spool->Create(kId, 10));
  EXPECT_THAT(spool->Create(kId, 10), StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/" + kId + ".part"));
}

TEST_F(SpoolFolderTest, WithoutRoomForAMarkTheFileIsTheMark) {
  const std::string disk = folder_.File("disk");
  ASSERT_EQ(mkdir(disk.c_str(), 0700), 0);
  // Folders, the lock and one file.
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "nr_inodes=4") != 0) {
    GTEST_SKIP() << "mounting a small file system is not permitted here";
  }
  {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto spool, OpenSpoolFolder(disk + "/spool"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, spool->Create(kId, 6));
    EXPECT_THAT(spool->Create(kOtherId, 6),
                StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
    spool->MarkDeleted(kId);
    EXPECT_EQ(*spool->List(), (std::vector<SpoolEntry>{{kId, 6, SpoolEntry::Kind::kDeleted}}));
    file->Remove();
    EXPECT_EQ(spool->List()->size(), 1U);
    spool->UnmarkDeleted(kId);
    EXPECT_EQ(spool->List()->size(), 0U);
  }
  EXPECT_EQ(umount(disk.c_str()), 0);
}

// A real full disk: a file system of one MiB.
class FullDiskTest : public StoreFixture {
 protected:
  void SetUp() override {
    ASSERT_EQ(mkdir(disk_.c_str(), 0700), 0);
    if (mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=1m") != 0) {
      GTEST_SKIP() << "mounting a small file system is not permitted here";
    }
    mounted_ = true;
    options_.spool_dir = disk_ + "/spool";
    options_.budget_bytes = 100 << 20;  // the disk is the limit, not the budget
    OpenStore();
  }
  void TearDown() override {
    store_.reset();
    if (mounted_) {
      EXPECT_EQ(umount(disk_.c_str()), 0);
    }
  }
  const std::string disk_ = folder_.File("disk");
  bool mounted_ = false;
};

TEST_F(FullDiskTest, IsToldWhenTheUploadIsCreated) {
  const auto refused = StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL",
                                "a file of the spool: cannot be made 2097152 bytes long");
  EXPECT_THAT(store_->CreateUpload(WeightOf(2 << 20), "id", {}), refused);
  EXPECT_THAT(store_->CreateUpload(GramSpec{800, DType::kF32, DType::kF32}, "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_THAT(store_->Put(WeightOf(2 << 20), BytesOf(std::string(2 << 20, 'x')), {},
                          absl::InfiniteFuture()),
              refused);
  EXPECT_EQ(store_->usage().used_bytes, 0) << "a refusal reserves nothing";
  EXPECT_EQ(store_->usage().uploads, 0);
  EXPECT_EQ(SpoolFiles(), 0U) << "and leaves nothing behind";

  // Files that fit go on working, also under the id that was refused.
  const std::string text = RandomText(600 << 10, 1);
  const TensorInfo tensor = NewTensor(text, "id2");
  EXPECT_EQ(Read(tensor.name), text);
  EXPECT_THAT(store_->CreateUpload(WeightOf(600 << 10), "id", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(tensor.name));
  SPARSEFW_EXPECT_OK(store_->CreateUpload(WeightOf(600 << 10), "id", {}))
      << "waits until the blocks of the removed file are free";
}

TEST_F(FullDiskTest, ASmallUploadIsToldWhenItsBytesCome) {
  const TensorInfo filler = NewTensor(RandomText(1000 << 10, 1), "filler");
  const std::string text = RandomText(60 << 10, 2);
  const UploadInfo upload = NewUpload(WeightOf(std::ssize(text)));
  EXPECT_THAT(Write(upload.name, 0, text),
              StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(filler.name));
  SPARSEFW_EXPECT_OK(Write(upload.name, 0, text)) << "nothing is lost";
}

}  // namespace
}  // namespace sparsefw::server
