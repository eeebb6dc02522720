#include "server/tensors/spool/file_remover.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

class FileRemoverTest : public ::testing::Test {
 protected:
  static auto Descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  }
  void Make(const std::string& name) const {
    const Descriptor file(openat(fd_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(fallocate(file.get(), 0, 0, 100'000), 0);
  }
  bool There(const std::string& name) const {
    struct stat info = {};
    return fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  }

  testing::TempFolder folder_;
  const Descriptor fd_{open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY)};
};

TEST_F(FileRemoverTest, TheNameGoesAtOnceAndTheDescriptorSoonAfter) {
  FileRemover remover;
  const auto before = Descriptors();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string name = std::to_string(t) + "-" + std::to_string(i);
        Make(name);
        EXPECT_EQ(remover.Remove(fd_.get(), name), 0);
        EXPECT_FALSE(There(name));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  remover.Wait();
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(FileRemoverTest, WhatIsNotThereOrIsAFolderIsAnError) {
  FileRemover remover;
  EXPECT_EQ(remover.Remove(fd_.get(), "nothing"), ENOENT);
  ASSERT_EQ(mkdirat(fd_.get(), "folder", 0700), 0);
  EXPECT_EQ(remover.Remove(fd_.get(), "folder"), EISDIR);
  EXPECT_TRUE(There("folder"));
}

TEST_F(FileRemoverTest, ALinkGoesAndItsTargetStays) {
  FileRemover remover;
  Make("target");
  ASSERT_EQ(symlinkat("target", fd_.get(), "link"), 0);
  EXPECT_EQ(remover.Remove(fd_.get(), "link"), 0);
  EXPECT_FALSE(There("link"));
  EXPECT_TRUE(There("target"));
}

TEST_F(FileRemoverTest, AFileGoesAtTheLimitOfDescriptors) {
  FileRemover remover;
  Make("file");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int error = remover.Remove(fd_.get(), "file");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, 0);
  EXPECT_FALSE(There("file"));
}

}  // namespace
}  // namespace sparsefw::server
