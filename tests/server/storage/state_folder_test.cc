#include "server/storage/state_folder.h"

#include <sys/stat.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

TEST(StateFolderTest, IsOneServersAtATime) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/made/state";
  {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Descriptor held, HoldStateFolder(path));
    EXPECT_THAT(HoldStateFolder(path),
                StatusIs(absl::StatusCode::kFailedPrecondition, "STATE_IN_USE", path));
  }
  EXPECT_THAT(HoldStateFolder(path), IsOk());
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
}

TEST(StateFolderTest, APathThatIsNoFolderIsRefused) {
  const testing::TempFolder folder;
  testing::WriteFile(folder.path() + "/file", "text");
  EXPECT_THAT(HoldStateFolder(folder.path() + "/file"),
              StatusIs(absl::StatusCode::kInternal, "STORE_FAILED", "/file"));
  EXPECT_THAT(HoldStateFolder(folder.path() + "/file/state"),
              StatusIs(absl::StatusCode::kInternal, "STORE_FAILED", "/file/state"));
}

}  // namespace
}  // namespace sparsefw::server
