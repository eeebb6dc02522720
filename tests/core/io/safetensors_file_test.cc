#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/safetensors.h"
#include "tests/core/io/file_builder.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw {
namespace {

using testing::StatusIs;

class SafetensorsFileTest : public ::testing::Test {
 protected:
  std::string Write(std::string_view bytes) {
    std::string path = folder_.File("t.safetensors");
    testing::WriteFile(path, bytes);
    return path;
  }
  testing::TempFolder folder_;
};

// Two tensors out of order, an empty one between them, and metadata.
constexpr char kHeader[] = R"({"__metadata__":{"format":"pt","note":"ä"},)"
                           R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
                           R"("empty":{"dtype":"F64","shape":[0,7],"data_offsets":[8,8]},)"
                           R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";

std::string GoodFile() {
  const float values[] = {1, 2, 3, 4};
  std::string header = kHeader;
  header.append((8 - header.size() % 8) % 8, ' ');
  return FileOf(header, std::string(reinterpret_cast<const char*>(values), sizeof(values)));
}

TEST_F(SafetensorsFileTest, ReadsEntriesAndMetadata) {
  const std::string path = Write(GoodFile());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));

  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"note", "ä"}}));
  ASSERT_EQ(file->entries().size(), 3U);
  EXPECT_EQ(file->entries()[0].name, "b");
  EXPECT_EQ(file->entries()[1].name, "empty");
  EXPECT_EQ(file->entries()[1].bytes.size(), 0U);
  EXPECT_EQ(file->entries()[2].name, "a");

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const b, file->Find("b"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView view, b->AsMatrix());
  EXPECT_EQ(view.rows(), 1);
  EXPECT_EQ(view.cols(), 2);
  EXPECT_EQ(view.row<float>(0)[0], 3.0F);
  EXPECT_EQ(view.row<float>(0)[1], 4.0F);
}

TEST_F(SafetensorsFileTest, ViewsOutliveTheNameOfTheFile) {
  const std::string path = Write(GoodFile());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  ASSERT_EQ(unlink(path.c_str()), 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const a, file->Find("a"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView view, a->AsMatrix());
  EXPECT_EQ(view.row<float>(1)[0], 2.0F);
}

TEST_F(SafetensorsFileTest, FindNamesWhatThereIs) {
  const std::string path = Write(GoodFile());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  EXPECT_THAT(file->Find("c"), StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND", path,
                                        "no tensor \"c\"", "\"a\", \"b\", \"empty\""));
  EXPECT_THAT(file->Find(""), StatusIs(absl::StatusCode::kInvalidArgument, "TENSOR_AMBIGUOUS", path,
                                       "must be named", "\"a\", \"b\", \"empty\""));
}

TEST_F(SafetensorsFileTest, FindListsAtMostTen) {
  std::string header = "{";
  for (int i = 0; i < 25; ++i) {
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(100 + i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file,
                                SafetensorsFile::Open(Write(FileOf(header + "}", ""))));
  EXPECT_THAT(file->Find("x"),
              StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND", "\"t109\", and 15 more"));
}

TEST_F(SafetensorsFileTest, EmptyNameFindsTheOnlyTensor) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto file,
      SafetensorsFile::Open(Write(
          FileOf(R"({"only":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", "12345678"))));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const only, file->Find(""));
  EXPECT_EQ(only->name, "only");
}

TEST_F(SafetensorsFileTest, NoTensorsIsAValidFile) {
  const std::string path = Write(FileOf("{}", ""));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  EXPECT_TRUE(file->entries().empty());
  EXPECT_THAT(file->Find(""), StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND", path,
                                       "it holds no tensor"));
}

TEST_F(SafetensorsFileTest, OnlyOurDTypesComeAsMatrices) {
  const std::string path =
      Write(FileOf(R"({"ids":{"dtype":"I64","shape":[1,1],"data_offsets":[0,8]}})", "12345678"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  EXPECT_THAT(file->entries()[0].dtype(), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   "DTYPE_UNSUPPORTED", path, "\"ids\"", "I64"));
  EXPECT_THAT(file->entries()[0].AsMatrix(),
              StatusIs(absl::StatusCode::kInvalidArgument, "DTYPE_UNSUPPORTED", "got I64"));
}

TEST_F(SafetensorsFileTest, OnlyTwoDimensionsAreAMatrix) {
  const std::string path =
      Write(FileOf(R"({"bias":{"dtype":"F32","shape":[1,2,1],"data_offsets":[0,8]}})", "12345678"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  EXPECT_THAT(file->entries()[0].AsMatrix(),
              StatusIs(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", path, "\"bias\"",
                       "two dimensions", "[1, 2, 1]"));
}

TEST_F(SafetensorsFileTest, UnalignedBytesAreReadableButNoMatrix) {
  std::string header = R"({"w":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
  header.append((9 - header.size() % 8) % 8, ' ');
  const std::string path = Write(FileOf(header, "abcd"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  EXPECT_EQ(std::memcmp(file->entries()[0].bytes.data(), "abcd", 4), 0);
  EXPECT_THAT(file->entries()[0].AsMatrix(),
              StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", "multiple of 4 bytes"));
}

TEST_F(SafetensorsFileTest, LengthFieldIsNotTrusted) {
  struct Case {
    std::string bytes;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", "the file is 0 bytes long"},
      {"1234567", "the file is 7 bytes long"},
      {LengthField(0), "must be a JSON object"},
      {LengthField(1), "said to be 1 bytes, the file is 8 bytes long"},
      {LengthField(100) + "{}", "said to be 100 bytes, the file is 10 bytes long"},
      {LengthField(100'000'000) + "{}", "said to be 100000000 bytes"},
      {LengthField(100'000'001) + "{}", "at most 100000000 bytes; the file says 100000001"},
      {LengthField(UINT64_MAX) + "{}", "the file says 18446744073709551615"},
      // Plus the 8 bytes of the field itself, these wrap around to a small number.
      {LengthField(UINT64_MAX - 7) + "{}", "the file says 18446744073709551608"},
      {LengthField(uint64_t{1} << 63) + "{}", "the file says 9223372036854775808"},
  };
  for (const Case& bad : cases) {
    const std::string path = Write(bad.bytes);
    EXPECT_THAT(SafetensorsFile::Open(path),
                StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", path, bad.message));
  }
}

// A sparse file as large as its header says: refused before it is parsed.
TEST_F(SafetensorsFileTest, HugeHeaderIsRefusedUnread) {
  const std::string path = Write(LengthField(2'000'000'000));
  ASSERT_EQ(truncate(path.c_str(), 3'000'000'000), 0);
  EXPECT_THAT(SafetensorsFile::Open(path),
              StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", "at most 100000000"));
}

TEST_F(SafetensorsFileTest, TruncatedFileSaysHowMuchIsThere) {
  const std::string whole = GoodFile();
  const std::string path = Write(whole.substr(0, whole.size() - 3));
  EXPECT_THAT(SafetensorsFile::Open(path),
              StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", path, "tensor \"b\"",
                       "within the 13 bytes", "[8, 16]"));
}

TEST_F(SafetensorsFileTest, WhatIsNoFileIsRefused) {
  EXPECT_THAT(SafetensorsFile::Open(folder_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", folder_.path(),
                       "it is a directory"));
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(SafetensorsFile::Open(pipe),
              StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", pipe, "regular file"));
  EXPECT_THAT(SafetensorsFile::Open("/dev/null"),
              StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", "/dev/null"));
}

TEST_F(SafetensorsFileTest, WhatCannotBeOpenedSaysWhy) {
  const std::string path = folder_.File("missing.safetensors");
  EXPECT_THAT(SafetensorsFile::Open(path),
              StatusIs(absl::StatusCode::kNotFound, "", path, "cannot be opened"));
  EXPECT_THAT(SafetensorsFile::Open(Write("x") + "/below"),
              StatusIs(absl::StatusCode::kNotFound, "", "cannot be opened"));
  EXPECT_THAT(SafetensorsFile::Open(""), StatusIs(absl::StatusCode::kNotFound));
  const std::string loop = folder_.File("loop");
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  EXPECT_THAT(SafetensorsFile::Open(loop),
              StatusIs(absl::StatusCode::kInvalidArgument, "", loop, "cannot be opened"));
}

TEST_F(SafetensorsFileTest, UnreadableFileIsPermissionDenied) {
  const std::string path = Write(GoodFile());
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  const bool root = geteuid() == 0;
  // Root may read anything: look at the file as nobody. The folder above is 0700.
  if (root) {
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    ASSERT_EQ(seteuid(65534), 0);
  }
  const auto file = SafetensorsFile::Open(path);
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(file, StatusIs(absl::StatusCode::kPermissionDenied, "", path, "cannot be opened"));
}

}  // namespace
}  // namespace sparsefw
