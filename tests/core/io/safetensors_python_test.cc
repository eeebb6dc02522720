#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/safetensors.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw {
namespace {

constexpr char kScript[] = SPARSEFW_SOURCE_DIR "/tests/core/io/other_implementation.py";

struct Output {
  int exit_code = -1;
  std::string text;
};

Output Python(const std::string& arguments) {
  Output output;
  const std::string command =
      "/usr/bin/python3 " + std::string(kScript) + " " + arguments + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer{};
  size_t count = 0;
  while ((count = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) {
    output.text.append(buffer.data(), count);
  }
  output.exit_code = pclose(pipe);
  return output;
}

TEST(SafetensorsPython, ReadsWhatPythonWrote) {
  const testing::TempFolder folder;
  const std::string path = folder.File("python.safetensors");
  const Output output = Python("write " + path);
  ASSERT_EQ(output.exit_code, 0) << output.text;

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  EXPECT_EQ(file->metadata(), (std::map<std::string, std::string>{{"written_by", "python"},
                                                                  {"emoji", "\U0001F600"}}));
  ASSERT_EQ(file->entries().size(), 5U);

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const weight, file->Find("layer.weight"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView view, weight->AsMatrix());
  EXPECT_EQ(view.rows(), 2);
  EXPECT_EQ(view.row<float>(0)[1], -1.0F);
  EXPECT_EQ(view.row<float>(1)[2], 1e30F);

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const gram, file->Find("layer.gram"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView gram_view, gram->AsMatrix());
  EXPECT_EQ(gram_view.row<double>(1)[0], 0.25);

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const half, file->Find("half"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView half_view, half->AsMatrix());
  EXPECT_EQ(ToFloat(half_view.row<Half>(0)[2]), 65504.0F);

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SafetensorsEntry* const ids, file->Find("ids"));
  EXPECT_EQ(ids->dtype_name, "I64");
  SPARSEFW_EXPECT_OK(file->Find("größe"));
}

TEST(SafetensorsPython, PythonReadsWhatWeWrote) {
  const testing::TempFolder folder;
  const std::string path = folder.File("ours.safetensors");
  const std::vector<uint8_t> mask = {1, 0, 1};
  const std::vector<float> weight = {1.0F, -2.0F};
  const std::vector<SafetensorsTensor> tensors = {
      {"mask", DType::kBool, {1, 3}, std::as_bytes(std::span(mask))},
      {"weight \"é\"", DType::kF32, {2, 1}, std::as_bytes(std::span(weight))},
  };
  SPARSEFW_ASSERT_OK(WriteSafetensors(path, tensors, {{"sparsity", "0.6"}}));
  const Output output = Python("read " + path);
  ASSERT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(output.text,
            "metadata {\"sparsity\": \"0.6\"}\n"
            "weight \"é\" F32 [2, 1] 0000803f000000c0\n"
            "mask BOOL [1, 3] 010001\n");
}

}  // namespace
}  // namespace sparsefw
