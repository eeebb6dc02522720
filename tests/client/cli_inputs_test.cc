// Local files: what is accepted, and the sentence for what is not.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/inputs.h"
#include "sparsefw/mask.h"
#include "tests/testing/matchers.h"

namespace sparsefw::cli {
namespace {

using ::sparsefw::testing::StatusIs;

constexpr std::array kFloats = {DType::kF32, DType::kF16};

class InputsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "cli_inputs_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const std::vector<SafetensorsTensor>& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
    const absl::Status status = WriteSafetensors(Path(name), tensors, metadata);
    EXPECT_TRUE(status.ok()) << status;
    return Path(name);
  }

  std::filesystem::path folder_;
  const std::vector<std::byte> zeros_ = std::vector<std::byte>(96);
};

TEST_F(InputsTest, LoadsAMatrix) {
  const std::string path = Write("w", {{"layer", DType::kF32, {4, 6}, zeros_}}, {{"k", "v"}});
  const auto input = LoadInput(path, kFloats);
  SPARSEFW_ASSERT_OK(input);
  EXPECT_EQ(input->label, path);
  EXPECT_EQ(input->tensor, "layer");
  EXPECT_EQ(input->rows, 4);
  EXPECT_EQ(input->cols, 6);
  EXPECT_EQ(input->bytes.size(), 96u);
  EXPECT_EQ(input->metadata.at("k"), "v");
}

TEST_F(InputsTest, ATensorIsNamedWhereThereAreSeveral) {
  const std::string path =
      Write("w", {{"a", DType::kF32, {4, 6}, zeros_}, {"b", DType::kF16, {8, 6}, zeros_}});
  const auto input = LoadInput(path + ":b", kFloats);
  SPARSEFW_ASSERT_OK(input);
  EXPECT_EQ(input->label, path + ":b");
  EXPECT_EQ(input->rows, 8);
  const auto all = LoadInput(path, kFloats);
  EXPECT_THAT(all, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(ExitCodeOf(all.status()), ExitCode::kUsage);
  EXPECT_THAT(LoadInput(path + ":c", kFloats), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(InputsTest, BadFilesAreNamed) {
  const auto missing = LoadInput(Path("none.safetensors"), kFloats);
  EXPECT_EQ(ExitCodeOf(missing.status()), ExitCode::kUsage);
  EXPECT_THAT(std::string(missing.status().message()), ::testing::StartsWith(Path("none")));
  std::ofstream(Path("empty")) << "";
  EXPECT_THAT(std::string(LoadInput(Path("empty"), kFloats).status().message()),
              ::testing::StartsWith(Path("empty")));
  const std::string flat = Write("flat", {{"x", DType::kF32, {24}, zeros_}});
  EXPECT_THAT(LoadInput(flat, kFloats),
              StatusIs(absl::StatusCode::kInvalidArgument, "", flat, "two dimensions", "[24]"));
  const std::string mask = Write("mask", {{"x", DType::kBool, {4, 24}, zeros_}});
  EXPECT_THAT(LoadInput(mask, kFloats),
              StatusIs(absl::StatusCode::kInvalidArgument, "", mask, "F32 or F16", "BOOL"));
}

TEST_F(InputsTest, Float64IsNarrowedWhereOnlyFloat32IsTaken) {
  const std::array<double, 2> values = {1.5, 0.1};
  const std::string path =
      Write("wide", {{"x", DType::kF64, {1, 2}, std::as_bytes(std::span(values))}});
  const auto narrowed = LoadInput(path, kFloats);
  SPARSEFW_ASSERT_OK(narrowed);
  EXPECT_EQ(narrowed->dtype, DType::kF32);
  std::array<float, 2> floats{};
  ASSERT_EQ(narrowed->bytes.size(), sizeof(floats));
  std::memcpy(floats.data(), narrowed->bytes.data(), sizeof(floats));
  EXPECT_EQ(floats, (std::array{1.5F, 0.1F}));
  constexpr std::array kBoth = {DType::kF32, DType::kF64};
  EXPECT_EQ(LoadInput(path, kBoth)->dtype, DType::kF64);
}

TEST_F(InputsTest, ShapesThatDoNotFitNameBothFiles) {
  const std::string w = Write("w", {{"w", DType::kF32, {4, 6}, zeros_}});
  const std::string g = Write("g", {{"g", DType::kF32, {6, 4}, zeros_}});
  const Input weight = *LoadInput(w, kFloats);
  const Input gram = *LoadInput(g, kFloats);
  const absl::Status status = CheckShape(gram, 6, 6, weight);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument, "", g, w, "[6, 6]", "got [6, 4]"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  SPARSEFW_EXPECT_OK(CheckShape(gram, 6, 4, weight));
}

TEST_F(InputsTest, PacksAMaskAsTheWireWantsIt) {
  std::vector<std::byte> bools(3 * 10);
  for (const size_t i : {0u, 9u, 13u, 29u}) bools[i] = std::byte{1};
  constexpr std::array kBools = {DType::kBool};
  const Input input = *LoadInput(Write("m", {{"m", DType::kBool, {3, 10}, bools}}), kBools);
  const auto bytes = PackMask(input);
  SPARSEFW_ASSERT_OK(bytes);
  const auto mask = Mask::FromBytes(3, 10, *bytes);
  SPARSEFW_ASSERT_OK(mask);
  for (int64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(mask->Get(i / 10, i % 10), bools[static_cast<size_t>(i)] == std::byte{1}) << i;
  }
  bools[17] = std::byte{2};
  const Input bad = *LoadInput(Write("b", {{"m", DType::kBool, {3, 10}, bools}}), kBools);
  EXPECT_THAT(PackMask(bad),
              StatusIs(absl::StatusCode::kInvalidArgument, "", Path("b"), "got 2 at [1, 7]"));
}

TEST_F(InputsTest, OutputsAreTriedBeforeTheyAreNeeded) {
  SPARSEFW_EXPECT_OK(CheckWritable("--out", Path("new"), false));
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const absl::Status no_folder = CheckWritable("--out", Path("no/such/file"), false);
  EXPECT_THAT(no_folder, StatusIs(absl::StatusCode::kInvalidArgument, "", "--out", "no/such"));
  EXPECT_EQ(ExitCodeOf(no_folder), ExitCode::kUsage);
  EXPECT_THAT(CheckWritable("--out", folder_.string(), true),
              StatusIs(absl::StatusCode::kInvalidArgument, "", "not a regular file"));
}

TEST_F(InputsTest, WhatIsThereIsReplacedOnlyWhenAskedFor) {
  std::ofstream(Path("mask")) << "x";
  const absl::Status there = CheckWritable("--out", Path("mask"), false);
  EXPECT_THAT(there, StatusIs(absl::StatusCode::kInvalidArgument, "", Path("mask"), "--overwrite"));
  EXPECT_EQ(ExitCodeOf(there), ExitCode::kUsage);
  SPARSEFW_EXPECT_OK(CheckWritable("--out", Path("mask"), true));
  std::ofstream(Path("empty"));  // of mktemp
  SPARSEFW_EXPECT_OK(CheckWritable("--out", Path("empty"), false));
}

TEST_F(InputsTest, TooLittleMemoryIsAnErrorOfTheFile) {
  const absl::Status status =
      WithinMemory(OutOfMemory("big"), []() -> absl::Status { throw std::bad_alloc(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "", "big: ", "memory"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
}

TEST_F(InputsTest, SameFileSeesThroughSpellingAndLinks) {
  std::ofstream(Path("a")) << "x";
  std::filesystem::create_symlink(Path("a"), Path("link"));
  EXPECT_TRUE(SameFile(Path("a"), Path("./a")));
  EXPECT_TRUE(SameFile(Path("a"), Path("link")));
  EXPECT_TRUE(SameFile(Path("new"), Path("x/../new")));
  EXPECT_FALSE(SameFile(Path("a"), Path("b")));
  // Outputs need not be there yet.
  std::filesystem::create_directory(Path("folder"));
  std::filesystem::create_directory_symlink("folder", Path("other"));
  std::filesystem::create_symlink("new", Path("dangling"));
  EXPECT_TRUE(SameFile(Path("folder/new"), Path("other/new")));
  EXPECT_TRUE(SameFile(Path("new"), Path("dangling")));
  EXPECT_FALSE(SameFile(Path("new"), Path("other/new")));
}

}  // namespace
}  // namespace sparsefw::cli
