// Files of several formats, and what shapes and numbers of activations and Gram matrices say.
#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/files/calibration.h"
#include "client/cpp/cli/files/npy.h"
#include "client/cpp/cli/files/tensor_file.h"
#include "client/cpp/cli/inputs.h"
#include "tests/testing/matchers.h"

namespace sparsefw::cli {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A .npy file of version 1 with this header and so many bytes of data.
std::string Npy(const std::string& header, size_t bytes, char version = 1) {
  std::string file = std::string(kNpyMagic) + version + '\0';
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  if (version > 1) file += std::string(2, '\0');
  return file + header + std::string(bytes, '\0');
}

std::string Header(const std::string& descr, const std::string& shape,
                   const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

TEST(NpyTest, ReadsTheHeaderOfEveryVersion) {
  for (const char version : {char{1}, char{2}, char{3}}) {
    const std::string file = Npy(Header("'<f4'", "(2, 3)"), 24, version);
    const auto array = ParseNpy("x.npy", Bytes(file));
    SPARSEFW_ASSERT_OK(array);
    EXPECT_EQ(array->dtype_name, "F32");
    EXPECT_THAT(array->shape, ElementsAre(2, 3));
    EXPECT_EQ(array->bytes.size(), 24u);
    EXPECT_EQ(array->bytes.data() + 24, Bytes(file).data() + file.size());
  }
  EXPECT_THAT(ParseNpy("x", Bytes(Npy(Header("'<f8'", "(3,)"), 24)))->shape, ElementsAre(3));
  EXPECT_THAT(ParseNpy("x", Bytes(Npy(Header("'|b1'", "()"), 1)))->shape, IsEmpty());
  // Whoever asks for it says which dtypes are allowed.
  EXPECT_EQ(ParseNpy("x", Bytes(Npy(Header("'>f4'", "(2,)"), 8)))->dtype_name, "NumPy's >f4");
}

TEST(NpyTest, WhatTheHeaderClaimsIsChecked) {
  const auto refused = [](const std::string& file) {
    return ParseNpy("x.npy", Bytes(file)).status();
  };
  const std::string good = Npy(Header("'<f4'", "(2, 3)"), 24);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(refused(good.substr(0, size)), StatusIs(kInvalid, "", "x.npy")) << size;
  }
  EXPECT_THAT(refused(good + '\0'), StatusIs(kInvalid, "", "shape [2, 3] of F32", "25 bytes"));
  EXPECT_THAT(refused(Npy(Header("'<f4'", "(2, 3)", "True"), 24)),
              StatusIs(kInvalid, "", "ascontiguousarray"));
  EXPECT_THAT(refused(Npy(Header("[('a', '<f4')]", "(2,)"), 8)), StatusIs(kInvalid, "", "fields"));
  EXPECT_THAT(refused(Npy("{'descr': '<f4', 'fortran_order': False, }", 8)),
              StatusIs(kInvalid, "", "must say shape"));
  for (const char* shape : {"(2, -3)", "(2, x)", "(,)", "(2, 3", "2", "(99999999999999999999,)"}) {
    EXPECT_THAT(refused(Npy(Header("'<f4'", shape), 24)), StatusIs(kInvalid, "", "shape")) << shape;
  }
  // Products that no size_t holds.
  EXPECT_THAT(refused(Npy(Header("'<f4'", "(4611686018427387904, 4)"), 0)),
              StatusIs(kInvalid, "", "must fill the file"));
  std::string deep = "(";
  for (int i = 0; i < 65; ++i) deep += "1, ";
  EXPECT_THAT(refused(Npy(Header("'<f4'", deep + ")"), 4)), StatusIs(kInvalid, "", "at most 64"));
  EXPECT_THAT(refused(Npy(Header("'<f4'", "(2, 3)"), 24, 4)), StatusIs(kInvalid, "", "version"));
}

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "cli_files_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  std::string Zip(const std::string& name, const std::string& member) const {
    std::string bytes("PK\x03\x04", 4);
    bytes += std::string(22, '\0');
    bytes += static_cast<char>(member.size());
    bytes += std::string(3, '\0');
    return Write(name, bytes + member);
  }

  std::filesystem::path folder_;
};

TEST_F(FilesTest, TheFirstBytesSayWhatAFileIs) {
  const std::string npy = Write("x.bin", Npy(Header("'<f4'", "(2, 3)"), 24));
  const auto tensor = OpenTensor(npy, "");
  SPARSEFW_ASSERT_OK(tensor);
  EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
  EXPECT_THAT(OpenTensor(npy, "w"), StatusIs(kInvalid, "", npy, "without a name", ":w"));

  const std::string npz = Zip("it's x.npz", "weight.npy");
  const auto archive = OpenTensor(npz, "");
  EXPECT_THAT(archive, StatusIs(kInvalid, "", npz, ".npz archive", "numpy.save", "'weight'"));
  EXPECT_EQ(ExitCodeOf(archive.status()), ExitCode::kUsage);
  // As the shell reads it.
  EXPECT_THAT(std::string(archive.status().message()), HasSubstr("it'\\''s x.npy'"));
  EXPECT_THAT(OpenTensor(npz, "bias"), StatusIs(kInvalid, "", "'bias'"));
  const std::string torch = Zip("x.pt", "archive/data.pkl");
  EXPECT_THAT(OpenTensor(torch, ""), StatusIs(kInvalid, "", torch, "torch.save", "x.safetensors"));
  EXPECT_THAT(OpenTensor(Write("old", "\x80\x02}q"), ""),
              StatusIs(kInvalid, "", "torch.save", "weights_only=True"));
  EXPECT_THAT(OpenTensor((folder_ / "none").string(), ""), StatusIs(absl::StatusCode::kNotFound));
  const std::string text = Write("text", "a text, which begins with no length of a header");
  EXPECT_THAT(OpenTensor(text, ""),
              StatusIs(kInvalid, "", text + ": must be a safetensors or .npy file; it is neither"));
  EXPECT_THAT(OpenTensor(Write("pointer", "version https://git-lfs.github.com/spec/v1\n"), ""),
              StatusIs(kInvalid, "", "a pointer of Git LFS", "git lfs pull"));
}

TEST_F(FilesTest, ActivationsComeInBatchesOfAnyRank) {
  const std::string a = Write("a.npy", Npy(Header("'<f4'", "(2, 5, 3)"), 120));
  const std::string b = Write("b.npy", Npy(Header("'<f8'", "(4, 3)"), 96));
  const auto batches = LoadActivations({a, b});
  SPARSEFW_ASSERT_OK(batches);
  EXPECT_EQ(TokensOf(*batches), 14);
  EXPECT_EQ(LabelOf(*batches), a + " and 1 more");
  EXPECT_EQ(BytesOf(*batches)[0].size() + BytesOf(*batches)[1].size(), 14u * 3 * 4);
  EXPECT_THAT(LoadActivations({a, a}), StatusIs(kInvalid, "", "given twice"));
  const std::string half = Write("h.npy", Npy(Header("'<f2'", "(4, 3)"), 24));
  EXPECT_THAT(LoadActivations({a, half}),
              StatusIs(kInvalid, "", half, "must be F32", "F16 [4, 3]"));
  const std::string flat = Write("f.npy", Npy(Header("'<f4'", "(6,)"), 24));
  EXPECT_THAT(LoadActivations({flat}), StatusIs(kInvalid, "", flat, "or more", "[6]"));
  const std::string none = Write("n.npy", Npy(Header("'<f4'", "(0, 3)"), 0));
  EXPECT_THAT(LoadActivations({none}), StatusIs(kInvalid, "", none, "[0, 3]"));
}

Input Of(int64_t rows, int64_t cols, std::span<const float> values = {}) {
  Input input;
  input.label = "x";
  input.rows = rows;
  input.cols = cols;
  input.bytes = std::as_bytes(values);
  return input;
}

TEST(CalibrationTest, ShapesSayWhatAFileMayBeInstead) {
  const Input weight = Of(7, 5);
  SPARSEFW_EXPECT_OK(CheckActivations(Of(3, 5), weight));
  EXPECT_THAT(CheckActivations(Of(5, 9), weight),
              StatusIs(kInvalid, "", "[tokens, 5]", "got [5, 9], which looks transposed"));
  const auto other = CheckActivations(Of(9, 6), weight);
  EXPECT_THAT(std::string(other.message()), ::testing::EndsWith("got [9, 6]"));
  SPARSEFW_EXPECT_OK(CheckGram(Of(5, 5), weight));
  EXPECT_THAT(CheckGram(Of(9, 9), weight),
              StatusIs(kInvalid, "", "[9, 9]", "x.T @ x, not x @ x.T"));
  EXPECT_THAT(CheckGram(Of(9, 5), weight), StatusIs(kInvalid, "", "--activations"));
  EXPECT_THAT(CheckGram(Of(5, 9), weight), StatusIs(kInvalid, "", "transposed", "--activations"));
  EXPECT_EQ(ExitCodeOf(CheckGram(Of(5, 9), weight)), ExitCode::kUsage);
}

TEST(CalibrationTest, FewTokensAndASquareXAreWarnings) {
  const std::array<float, 25> ones = {1, 1, 1, 1, 1};
  const std::span<const float> values(ones);
  const std::array<Input, 2> few = {Of(2, 5, values.first(10)), Of(2, 5, values.first(10))};
  EXPECT_THAT(WarningsOf(few), ElementsAre(HasSubstr("4 tokens are fewer than the 5 inputs")));
  const std::array<Input, 2> enough = {Of(2, 5, values.first(10)), Of(3, 5, values.first(15))};
  EXPECT_THAT(WarningsOf(enough), IsEmpty());
  const std::array<Input, 1> square = {Of(5, 5, values)};
  EXPECT_THAT(WarningsOf(square), ElementsAre(HasSubstr("is square")));
}

TEST(CalibrationTest, AGramOfHigherRankThanItsTokensIsNoSumOverThem) {
  const std::array<float, 9> identity = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const std::array<float, 9> ones = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto with_tokens = [](std::span<const float> values, const char* tokens) {
    Input gram = Of(3, 3, values);
    if (tokens != nullptr) gram.metadata["token_count"] = tokens;
    return WarningsOfGram(gram);
  };
  EXPECT_THAT(with_tokens(identity, "2"),
              ElementsAre(HasSubstr("2 tokens are fewer"), HasSubstr("the rank is at least 3")));
  EXPECT_THAT(with_tokens(ones, "1"), ElementsAre(HasSubstr("1 tokens are fewer")));
  EXPECT_THAT(with_tokens(identity, "3"), IsEmpty());
  EXPECT_THAT(with_tokens(identity, nullptr), IsEmpty());
}

TEST(CalibrationTest, OnlyZerosAreAWarning) {
  const std::array<float, 4> zeros = {};
  EXPECT_THAT(WarningsOfGram(Of(2, 2, zeros)), ElementsAre(HasSubstr("the diagonal is zero")));
  const std::array<float, 4> dead_input = {0, 0, 0, 1};
  EXPECT_THAT(WarningsOfGram(Of(2, 2, dead_input)), IsEmpty());
  const std::array<float, 6> three = {};
  const std::array<Input, 1> batch = {Of(3, 2, three)};
  EXPECT_THAT(WarningsOf(batch), ElementsAre(HasSubstr("only zeros")));
  const std::array<float, 6> one = {0, 0, 0, 0, 0, 1};
  const std::array<Input, 2> batches = {Of(3, 2, three), Of(3, 2, one)};
  EXPECT_THAT(WarningsOf(batches), IsEmpty());
}

}  // namespace
}  // namespace sparsefw::cli
