#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/safetensors.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw {
namespace {

using testing::StatusIs;

std::span<const std::byte> Bytes(const auto& values) { return std::as_bytes(std::span(values)); }

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  testing::TempFolder folder_;
  const std::string path_ = folder_.File("out.safetensors");
  const std::vector<float> floats_ = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> bools_ = {1, 0, 1};
  const std::vector<double> doubles_ = {0.5};
};

TEST_F(SafetensorsWriterTest, RoundTrip) {
  const std::vector<SafetensorsTensor> tensors = {
      {"mask", DType::kBool, {1, 3}, Bytes(bools_)},
      {"weight \"ä\"\n", DType::kF32, {2, 3}, Bytes(floats_)},
      {"none", DType::kF16, {0, 5}, {}},
      {"scalar", DType::kF64, {}, Bytes(doubles_)},
  };
  const std::map<std::string, std::string> metadata = {{"method", "SparseFW"}, {"ü", "\"\\\t"}};
  SPARSEFW_ASSERT_OK(WriteSafetensors(path_, tensors, metadata));

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path_));
  EXPECT_EQ(file->metadata(), metadata);
  ASSERT_EQ(file->entries().size(), tensors.size());
  for (const SafetensorsTensor& tensor : tensors) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const entry, file->Find(tensor.name));
    EXPECT_EQ(entry->dtype_name, DTypeName(tensor.dtype));
    EXPECT_EQ(entry->shape, tensor.shape);
    ASSERT_EQ(entry->bytes.size(), tensor.bytes.size());
    EXPECT_TRUE(std::equal(entry->bytes.begin(), entry->bytes.end(), tensor.bytes.begin()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry->bytes.data()) % SizeOf(tensor.dtype), 0U)
        << tensor.name << " is not aligned";
  }
  EXPECT_EQ(folder_.Count(), 1U) << "a temporary file is left";
}

TEST_F(SafetensorsWriterTest, NoTensorsAndNoMetadata) {
  SPARSEFW_ASSERT_OK(WriteSafetensors(path_, {}, {}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path_));
  EXPECT_TRUE(file->entries().empty());
  EXPECT_TRUE(file->metadata().empty());
}

TEST_F(SafetensorsWriterTest, WritesWhereLinksLead) {
  const std::vector<SafetensorsTensor> tensors = {{"w", DType::kF32, {6}, Bytes(floats_)}};
  const std::string target = folder_.File("target"), link = folder_.File("link");
  ASSERT_EQ(symlink("target", link.c_str()), 0);
  ASSERT_EQ(symlink(link.c_str(), path_.c_str()), 0);
  for (int i = 0; i < 2; ++i) {  // to nothing yet, then to a file
    SPARSEFW_ASSERT_OK(WriteSafetensors(path_, tensors, {}));
    struct stat info = {};
    ASSERT_EQ(lstat(path_.c_str(), &info), 0);
    EXPECT_TRUE(S_ISLNK(info.st_mode)) << "the link stays";
    ASSERT_EQ(lstat(target.c_str(), &info), 0);
    EXPECT_TRUE(S_ISREG(info.st_mode));
    EXPECT_EQ(folder_.Count(), 3U);
  }
  EXPECT_EQ(FileBehindLinks(path_), target);
  EXPECT_EQ(FileBehindLinks("none"), "none");
}

TEST_F(SafetensorsWriterTest, ReplacesAtOnceAndKeepsReadersOfTheOldFile) {
  const std::vector<float> before = {7};
  const std::vector<SafetensorsTensor> first = {{"w", DType::kF32, {1}, Bytes(before)}};
  SPARSEFW_ASSERT_OK(WriteSafetensors(path_, first, {}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto old, SafetensorsFile::Open(path_));
  const std::vector<SafetensorsTensor> second = {{"w", DType::kF32, {6}, Bytes(floats_)}};
  SPARSEFW_ASSERT_OK(WriteSafetensors(path_, second, {}));

  EXPECT_EQ(std::memcmp(old->entries()[0].bytes.data(), before.data(), sizeof(float)), 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto now, SafetensorsFile::Open(path_));
  EXPECT_EQ(now->entries()[0].shape, (std::vector<int64_t>{6}));
}

TEST_F(SafetensorsWriterTest, NewFileHasUsualPermissions) {
  const mode_t mask = umask(022);
  const absl::Status status = WriteSafetensors(path_, {}, {});
  umask(mask);
  SPARSEFW_ASSERT_OK(status);
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0644U);
}

TEST_F(SafetensorsWriterTest, RefusesWhatItCouldNotReadBack) {
  struct Case {
    std::vector<SafetensorsTensor> tensors;
    std::map<std::string, std::string> metadata;
    std::string message;
  };
  const auto tensor = [&](std::string name, std::vector<int64_t> shape) {
    return SafetensorsTensor{std::move(name), DType::kF32, std::move(shape), Bytes(floats_)};
  };
  const std::vector<Case> cases = {
      {{tensor("w", {2, 2})}, {}, "tensor \"w\": shape [2, 2] of F32 must be 16 bytes; got 24"},
      {{tensor("w", {-2, -3})}, {}, "shape [-2, -3] of F32 must be from 0"},
      {{tensor("w", {int64_t{1} << 62, 4})}, {}, "must be from 0 to 2^63-1 bytes"},
      {{tensor("w", std::vector<int64_t>(65, 1))}, {}, "at most 64 numbers; got 65"},
      {{tensor("w", {6}), tensor("w", {6})}, {}, "unique; got tensor \"w\" twice"},
      {{tensor("__metadata__", {6})}, {}, "reserves it"},
      {{tensor("\xFF", {6})}, {}, "UTF-8"},
      {{}, {{"k", "\xC3"}}, "UTF-8"},
      {{}, {{"k", std::string(100'000'000, 'v')}}, "at most 100000000 bytes; got 100000001"},
      // Six characters each once they are escaped.
      {{}, {{"k", std::string(17'000'000, '\x01')}}, "at most 100000000 bytes; got 102000"},
  };
  for (const Case& bad : cases) {
    EXPECT_THAT(WriteSafetensors(path_, bad.tensors, bad.metadata),
                StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", path_, bad.message));
    EXPECT_EQ(folder_.Count(), 0U);
  }
}

TEST_F(SafetensorsWriterTest, RefusesPathsThatAreNoFiles) {
  EXPECT_THAT(WriteSafetensors(folder_.path(), {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", "it is a directory"));
  EXPECT_THAT(
      WriteSafetensors("/dev/null", {}, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", "/dev/null", "regular file"));
  const std::string below = folder_.File("no/such/folder.safetensors");
  EXPECT_THAT(WriteSafetensors(below, {}, {}),
              StatusIs(absl::StatusCode::kNotFound, "", below, "cannot be written"));
  EXPECT_EQ(folder_.Count(), 0U);
}

// A rename would take the place of the file that the descriptor stands for.
TEST_F(SafetensorsWriterTest, RefusesDescriptors) {
  const std::string behind = folder_.File("behind");
  const int fd = open(behind.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const std::string name = "/proc/self/fd/" + std::to_string(fd);
  std::filesystem::create_symlink(name, folder_.File("link"));
  for (const std::string& path :
       {name, folder_.File("link"), "/dev/fd/" + std::to_string(fd), std::string("/dev/stdout")}) {
    EXPECT_TRUE(IsDescriptor(path)) << path;
    EXPECT_THAT(WriteSafetensors(path, {}, {}), StatusIs(absl::StatusCode::kInvalidArgument,
                                                         "FILE_INVALID", path, "open descriptor"));
  }
  EXPECT_FALSE(IsDescriptor(behind));
  struct stat info = {};
  ASSERT_EQ(fstat(fd, &info), 0);
  EXPECT_EQ(info.st_nlink, 1U) << "the file is replaced";
  close(fd);
}

TEST_F(SafetensorsWriterTest, LongestNameIsWritten) {
  const std::string path = folder_.File(std::string(255, 'n'));
  SPARSEFW_EXPECT_OK(WriteSafetensors(path, {}, {}));
  EXPECT_THAT(WriteSafetensors(path + "n", {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "", "cannot be written"));
}

// The limit on file sizes stands for a full disk where none can be mounted.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_ = {};
  void (*old_handler_)(int) = nullptr;
};

// Lets linkat, and files without a name too if `unnamed`, fail in this process from now on, as on
// some network file systems.
void Refuse(bool unnamed) {
  constexpr auto kNumber = static_cast<uint32_t>(offsetof(seccomp_data, nr));
  constexpr auto kFlags = static_cast<uint32_t>(offsetof(seccomp_data, args) + 2 * 8);
  constexpr uint32_t kUnnamed = O_TMPFILE & ~O_DIRECTORY;
  constexpr uint32_t kNoCall = 0xffff;
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unnamed ? SYS_openat : kNoCall, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kUnnamed, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<uint16_t>(std::size(rules)), rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::exit(77);
  }
}

TEST_F(SafetensorsWriterTest, FilesThatGetNoNameLaterAreWrittenWithOne) {
  const std::vector<SafetensorsTensor> tensors = {{"w", DType::kF32, {6}, Bytes(floats_)}};
  for (const bool unnamed : {false, true}) {
    const auto write = [&] {
      Refuse(unnamed);
      std::exit(WriteSafetensors(path_, tensors, {}).ok() ? 0 : 1);
    };
    EXPECT_EXIT(write(), ::testing::ExitedWithCode(0), "") << unnamed;
    SPARSEFW_EXPECT_OK(SafetensorsFile::Open(path_));
    EXPECT_EQ(folder_.Count(), 1U) << "a temporary file is left";
    std::filesystem::remove(path_);
    const auto fail = [&] {
      Refuse(unnamed);
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit = {16, 16};
      setrlimit(RLIMIT_FSIZE, &limit);
      std::exit(WriteSafetensors(path_, tensors, {}).ok() ? 1 : 0);
    };
    EXPECT_EXIT(fail(), ::testing::ExitedWithCode(0), "") << unnamed;
    EXPECT_EQ(folder_.Count(), 0U) << "a temporary file is left";
  }
}

// SIGXFSZ, which is not ignored here, comes in the middle of the data.
TEST_F(SafetensorsWriterTest, AProgramThatIsKilledLeavesNothing) {
  const int unnamed = open(folder_.path().c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
  if (unnamed < 0) GTEST_SKIP() << "this file system has no files without a name";
  close(unnamed);
  const std::vector<float> many(100'000, 1.0F);
  const std::vector<SafetensorsTensor> large = {{"w", DType::kF32, {100'000}, Bytes(many)}};
  const auto write_much = [&] {
    const rlimit limit = {64 << 10, 64 << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    WriteSafetensors(path_, large, {}).IgnoreError();
    std::exit(0);
  };
  EXPECT_EXIT(write_much(), ::testing::KilledBySignal(SIGXFSZ), "");
  EXPECT_EQ(folder_.Count(), 0U) << "a temporary file is left";
}

TEST_F(SafetensorsWriterTest, TooLargeAFileLeavesTheOldOne) {
  const std::vector<SafetensorsTensor> small = {{"w", DType::kF32, {6}, Bytes(floats_)}};
  SPARSEFW_ASSERT_OK(WriteSafetensors(path_, small, {}));
  const std::string before = testing::ReadFile(path_);
  const std::vector<float> many(100'000, 1.0F);
  const std::vector<SafetensorsTensor> large = {{"w", DType::kF32, {100'000}, Bytes(many)}};
  absl::Status status;
  {
    const FileSizeLimit limit(64 << 10);
    status = WriteSafetensors(path_, large, {});
  }
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted, "", path_, "cannot be written"));
  EXPECT_EQ(testing::ReadFile(path_), before);
  EXPECT_EQ(folder_.Count(), 1U) << "a temporary file is left";
}

TEST_F(SafetensorsWriterTest, FullDiskLeavesTheOldFile) {
  const std::string disk = folder_.File("disk");
  ASSERT_EQ(mkdir(disk.c_str(), 0700), 0);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting a small file system is not permitted here";
  }
  const std::string path = disk + "/out.safetensors";
  const std::vector<SafetensorsTensor> small = {{"w", DType::kF32, {6}, Bytes(floats_)}};
  const std::vector<float> many(1'000'000, 1.0F);
  const std::vector<SafetensorsTensor> large = {{"w", DType::kF32, {1'000'000}, Bytes(many)}};
  const absl::Status first = WriteSafetensors(path, small, {});
  const std::string before = testing::ReadFile(path);
  const absl::Status second = WriteSafetensors(path, large, {});
  const std::string after = testing::ReadFile(path);
  const auto left = std::distance(std::filesystem::directory_iterator(disk),
                                  std::filesystem::directory_iterator());
  ASSERT_EQ(umount(disk.c_str()), 0);

  SPARSEFW_EXPECT_OK(first);
  EXPECT_THAT(second,
              StatusIs(absl::StatusCode::kResourceExhausted, "", path, "cannot be written"));
  EXPECT_EQ(after, before);
  EXPECT_EQ(left, 1) << "a temporary file is left";
}

TEST_F(SafetensorsWriterTest, FolderWithoutPermissionIsPermissionDenied) {
  const bool root = geteuid() == 0;
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const absl::Status status = WriteSafetensors(path_, {}, {});
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kPermissionDenied, "", path_, "cannot be written"));
}

}  // namespace
}  // namespace sparsefw
