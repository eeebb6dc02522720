#include "server/runner/checkpoint_folder.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using ::sparsefw::testing::IsOk;

class CheckpointFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = CheckpointFolder::Open(
        path_, absl::Seconds(10),
        [this](const std::string&, const absl::Status& error) { errors_.push_back(error); });
    ASSERT_THAT(opened, IsOk());
    checkpoints_ = *std::move(opened);
  }
  static std::span<const std::byte> Bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
  }
  void Write(CheckpointSink& sink, std::string_view text) {
    ASSERT_THAT(sink.Begin({}), IsOk());
    ASSERT_THAT(sink.Write(Bytes(text.substr(0, 2))), IsOk());
    ASSERT_THAT(sink.Write(Bytes(text.substr(2))), IsOk());
  }
  std::string Found(std::string_view job) {
    auto found = checkpoints_->Find(job);
    EXPECT_THAT(found, IsOk());
    const auto bytes = found->bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  size_t Files() {
    size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++files;
    return files;
  }

  testing::TempFolder folder_;
  const std::string path_ = folder_.File("checkpoints");
  std::unique_ptr<CheckpointFolder> checkpoints_;
  std::vector<absl::Status> errors_;
};

TEST_F(CheckpointFolderTest, TheLastCompleteOneIsThere) {
  EXPECT_EQ(Found("jobs/a"), "");
  const auto sink = checkpoints_->SinkOf("jobs/a");
  Write(*sink, "first");
  EXPECT_EQ(Found("jobs/a"), "") << "not committed";
  ASSERT_THAT(sink->Commit(), IsOk());
  EXPECT_EQ(Found("jobs/a"), "first");
  Write(*sink, "second");
  EXPECT_EQ(Found("jobs/a"), "first");
  sink->Abandon();
  EXPECT_EQ(Found("jobs/a"), "first");
  Write(*sink, "third");
  ASSERT_THAT(sink->Commit(), IsOk());
  EXPECT_EQ(Found("jobs/a"), "third");
  EXPECT_EQ(Found("jobs/b"), "");
  EXPECT_EQ(Files(), 1U);
  checkpoints_->Remove("jobs/a");
  EXPECT_EQ(Files(), 0U);
}

TEST_F(CheckpointFolderTest, OnesOfJobsThatEndedAreSwept) {
  for (const char* job : {"jobs/a", "jobs/b"}) {
    const auto sink = checkpoints_->SinkOf(job);
    Write(*sink, job);
    ASSERT_THAT(sink->Commit(), IsOk());
  }
  std::ofstream(path_ + "/c.checkpoint.part") << "cut off";
  std::ofstream(path_ + "/notes.txt") << "somebody else's";
  checkpoints_->RemoveAllBut({"jobs/b"});
  EXPECT_EQ(Found("jobs/a"), "");
  EXPECT_EQ(Found("jobs/b"), "jobs/b");
  EXPECT_EQ(Files(), 2U) << "that of b, and what is not ours";
}

TEST_F(CheckpointFolderTest, DueByTimeAndOnceWhenADrainBegins) {
  const auto sink = checkpoints_->SinkOf("jobs/a");
  EXPECT_FALSE(sink->Due({absl::Seconds(9), absl::ZeroDuration()}));
  EXPECT_TRUE(sink->Due({absl::Seconds(10), absl::ZeroDuration()}));
  EXPECT_FALSE(sink->Due({absl::ZeroDuration(), absl::ZeroDuration()}));
  checkpoints_->CheckpointSoon();
  EXPECT_TRUE(sink->Due({absl::ZeroDuration(), absl::ZeroDuration()}));
  EXPECT_FALSE(sink->Due({absl::ZeroDuration(), absl::ZeroDuration()}));
}

TEST_F(CheckpointFolderTest, AFailureIsToldAndLeavesTheLastOne) {
  const auto sink = checkpoints_->SinkOf("jobs/a");
  Write(*sink, "first");
  ASSERT_THAT(sink->Commit(), IsOk());
  std::filesystem::create_directory(path_ + "/a.checkpoint.part");
  EXPECT_FALSE(sink->Begin({}).ok());
  EXPECT_EQ(errors_.size(), 1U);
  sink->Abandon();
  EXPECT_EQ(Found("jobs/a"), "first");
}

}  // namespace
}  // namespace sparsefw::server
