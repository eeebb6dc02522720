#include "server/identity/identity_files.h"

#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;
using testing::WriteFile;

constexpr auto kInvalidFile = absl::StatusCode::kInvalidArgument;
constexpr char kBobsLine[] =
    "bob:0d4f6a2d5b6b8e1f0f4a3b5c7d9e1f30d4f6a2d5b6b8e1f0f4a3b5c7d9e1f300\n";
constexpr char kLine[] =
    "alice:d7ecdf25eaf3deba0f2628771dbdd22d4138ab6cf38f91ed02a2ca0dec7c8ab7\n";  // open-sesame

class IdentityFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(tokens_, kLine);
    WriteFile(tenants_, "[alice]\nmax-uploads = 1\n");
    auto files = IdentityFiles::Open(tokens_, tenants_, &authenticator_);
    ASSERT_THAT(files, IsOk());
    files_ = *std::move(files);
  }
  bool Knows(std::string_view token) {
    Credentials credentials;
    const std::string value = "Bearer " + std::string(token);
    credentials.authorization = {value};
    return authenticator_.Authenticate(credentials, absl::UnixEpoch()).ok();
  }
  // The result of the second look: the first sees the change.
  std::vector<Reload> AfterTwoLooks() {
    EXPECT_TRUE(files_->Poll().empty());
    return files_->Poll();
  }

  const testing::TempFolder folder_;
  const std::string tokens_ = folder_.File("tokens");
  const std::string tenants_ = folder_.File("tenants");
  Authenticator authenticator_{{.tokens = true}};
  std::unique_ptr<IdentityFiles> files_;
};

TEST_F(IdentityFilesTest, ReadsAtTheStart) {
  EXPECT_TRUE(Knows("open-sesame"));
  EXPECT_EQ(authenticator_.LimitsOf("alice").max_uploads, 1);
  EXPECT_TRUE(files_->Poll().empty());
  EXPECT_TRUE(files_->Poll().empty());
}

TEST_F(IdentityFilesTest, TakesAChangeOnceItHasSettled) {
  WriteFile(tokens_, kBobsLine);
  EXPECT_TRUE(files_->Poll().empty()) << "it may still be written";
  EXPECT_TRUE(Knows("open-sesame"));
  WriteFile(tokens_, std::string("# alice is revoked\n") + kBobsLine);
  EXPECT_TRUE(files_->Poll().empty()) << "it is still written";
  const std::vector<Reload> reloads = files_->Poll();
  ASSERT_EQ(reloads.size(), 1U);
  EXPECT_THAT(reloads[0].status, IsOk());
  EXPECT_EQ(reloads[0].file, tokens_);
  EXPECT_EQ(reloads[0].entries, 1);
  EXPECT_FALSE(Knows("open-sesame"));
  EXPECT_TRUE(files_->Poll().empty());
}

// The descriptors of the process are used up for a moment: the change must not be lost.
TEST_F(IdentityFilesTest, AReadThatFailsIsTriedAgain) {
  WriteFile(tokens_, kBobsLine);
  EXPECT_TRUE(files_->Poll().empty());
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::vector<Reload> failed = files_->Poll();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_THAT(failed[0].status, StatusIs(kInvalidFile, "CONFIGURATION_INVALID", tokens_));
  EXPECT_TRUE(Knows("open-sesame"));
  std::vector<Reload> reloads;
  for (int look = 0; look < 10 && reloads.empty(); ++look) reloads = files_->Poll();
  ASSERT_EQ(reloads.size(), 1U);
  EXPECT_THAT(reloads[0].status, IsOk());
  EXPECT_FALSE(Knows("open-sesame"));
  for (int look = 0; look < 20; ++look) EXPECT_TRUE(files_->Poll().empty());
}

TEST_F(IdentityFilesTest, SeesARename) {
  std::string other(kLine);
  other[other.size() - 2] = '0';
  WriteFile(folder_.File("new"), other);
  std::filesystem::last_write_time(folder_.File("new"), std::filesystem::last_write_time(tokens_));
  std::filesystem::rename(folder_.File("new"), tokens_);
  EXPECT_EQ(AfterTwoLooks().size(), 1U) << "same size, same time, another file";
  EXPECT_FALSE(Knows("open-sesame"));
}

TEST_F(IdentityFilesTest, ABrokenFileKeepsTheOldOneAndIsReportedOnce) {
  WriteFile(tokens_, std::string(kLine) + "nonsense\n");
  std::vector<Reload> reloads = AfterTwoLooks();
  ASSERT_EQ(reloads.size(), 1U);
  EXPECT_THAT(reloads[0].status, StatusIs(kInvalidFile, "CONFIGURATION_INVALID", tokens_ + ":2: "));
  EXPECT_TRUE(Knows("open-sesame"));
  EXPECT_TRUE(files_->Poll().empty());
  std::filesystem::remove(tenants_);
  reloads = AfterTwoLooks();
  ASSERT_EQ(reloads.size(), 1U);
  EXPECT_THAT(reloads[0].status, StatusIs(kInvalidFile, "CONFIGURATION_INVALID", tenants_));
  EXPECT_EQ(authenticator_.LimitsOf("alice").max_uploads, 1);
  EXPECT_TRUE(files_->Poll().empty());
  // Mended.
  WriteFile(tenants_, "[alice]\nmax-uploads = 2\n");
  EXPECT_EQ(AfterTwoLooks().size(), 1U);
  EXPECT_EQ(authenticator_.LimitsOf("alice").max_uploads, 2);
}

// An editor, a shell's > or a full disk leaves it so, for a moment or for good.
TEST_F(IdentityFilesTest, AFileWithoutAnyEntryIsRefused) {
  const auto refused = [](const std::string& file) {
    return StatusIs(kInvalidFile, "CONFIGURATION_INVALID", file, "at least");
  };
  for (const std::string content : {"", "\n", "# nobody\n"}) {
    WriteFile(tokens_, content);
    std::vector<Reload> reloads = AfterTwoLooks();
    ASSERT_EQ(reloads.size(), 1U);
    EXPECT_THAT(reloads[0].status, refused(tokens_));
    EXPECT_THAT(files_->Poll(true)[0].status, refused(tokens_)) << "on demand, too";
    EXPECT_TRUE(Knows("open-sesame"));
  }
  WriteFile(tenants_, "");
  EXPECT_THAT(AfterTwoLooks().at(0).status, refused(tenants_));
  EXPECT_EQ(authenticator_.LimitsOf("alice").max_uploads, 1);
  EXPECT_THAT(IdentityFiles::Open(tokens_, "", &authenticator_), refused(tokens_));
  EXPECT_THAT(IdentityFiles::Open("", tenants_, &authenticator_), refused(tenants_));
  WriteFile(tenants_, "[*]\n");
  EXPECT_THAT(IdentityFiles::Open("", tenants_, &authenticator_), IsOk());
}

TEST_F(IdentityFilesTest, OnDemandEverythingIsRead) {
  WriteFile(tokens_, kBobsLine);
  EXPECT_EQ(files_->Poll(true).size(), 2U);
  EXPECT_FALSE(Knows("open-sesame"));
  EXPECT_TRUE(files_->Poll().empty());
}

TEST_F(IdentityFilesTest, FilesThatCannotBeReadAtTheStart) {
  const auto invalid = [](const std::string& words) {
    return StatusIs(kInvalidFile, "CONFIGURATION_INVALID", words);
  };
  const std::string none = folder_.File("none");
  EXPECT_THAT(IdentityFiles::Open(none, "", &authenticator_), invalid(none));
  EXPECT_THAT(IdentityFiles::Open("", none, &authenticator_), invalid(none));
  EXPECT_THAT(IdentityFiles::Open(folder_.path(), "", &authenticator_), invalid("cannot read"));
  EXPECT_THAT(IdentityFiles::Open("", tokens_, &authenticator_), invalid("tokens:1: "));
  WriteFile(none, std::string((size_t{16} << 20) + 1, '\n'));
  EXPECT_THAT(IdentityFiles::Open(none, "", &authenticator_), invalid("at most"));
  EXPECT_THAT(IdentityFiles::Open("", "", &authenticator_), IsOk());
}

}  // namespace
}  // namespace sparsefw::server
