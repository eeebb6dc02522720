// Names of patterns, precisions, spans, files and tensors on the command line.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "client/cpp/cli/flags/field_text.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/inputs.h"
#include "tests/testing/matchers.h"

namespace sparsefw::cli {
namespace {

using ::sparsefw::testing::StatusIs;

TEST(NamesTest, PatternsRoundTrip) {
  for (const std::string text : {"2:4", "4:8", "1:1", "16:32"}) {
    const auto pattern = ParsePattern(text, std::nullopt);
    SPARSEFW_ASSERT_OK(pattern);
    EXPECT_EQ(PatternName(*pattern), text);
  }
  SPARSEFW_EXPECT_OK(ParsePattern("2:4", 0.5));
  EXPECT_DOUBLE_EQ(SparsityOf(*ParsePattern("1:4", std::nullopt)), 0.75);
  EXPECT_EQ(PatternName(*ParsePattern("per-row", 0.0)), "per-row");
  EXPECT_EQ(PatternName(*ParsePattern("unstructured", 1.0)), "unstructured");
}

TEST(NamesTest, EnumWords) {
  EXPECT_EQ(EnumWords(*v1::ProductPrecision_descriptor()), "fp32|tf32|bf16");
  EXPECT_EQ(EnumWords(*v1::StepRule_descriptor()), "open-loop|line-search|auto");
  EXPECT_EQ(*ParseEnum(*v1::ProductPrecision_descriptor(), "--x", "tf32"),
            v1::PRODUCT_PRECISION_TF32);
  EXPECT_THAT(ParseEnum(*v1::ProductPrecision_descriptor(), "--x", "unspecified"),
              StatusIs(absl::StatusCode::kInvalidArgument, "", "--x must be one of fp32, tf32"));
}

TEST(NamesTest, TimeSpans) {
  EXPECT_EQ(*ParseTimeSpan("--x", "60s"), absl::Seconds(60));
  EXPECT_EQ(*ParseTimeSpan("--x", "5m"), absl::Minutes(5));
  EXPECT_EQ(*ParseTimeSpan("--x", "1h"), absl::Hours(1));
  EXPECT_EQ(*ParseTimeSpan("--x", "1.5s"), absl::Milliseconds(1500));
  EXPECT_EQ(ToProto(absl::Milliseconds(1500)).nanos(), 500'000'000);
  EXPECT_EQ(FromProto(ToProto(absl::Milliseconds(1500))), absl::Milliseconds(1500));
}

TEST(FileRefTest, PrefersFilesThatExist) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "file_ref_test";
  std::filesystem::create_directories(folder);
  const std::string plain = (folder / "a.safetensors").string();
  const std::string colon = (folder / "a.safetensors:b").string();
  std::filesystem::remove(colon);
  std::ofstream(plain) << "x";
  EXPECT_EQ(ParseFileRef(plain), (FileRef{plain, ""}));
  EXPECT_EQ(ParseFileRef(plain + ":b"), (FileRef{plain, "b"}));
  EXPECT_EQ(ParseFileRef(plain + ":b:c"), (FileRef{plain, "b:c"}));
  std::ofstream(colon) << "x";
  EXPECT_EQ(ParseFileRef(colon), (FileRef{colon, ""}));
  EXPECT_EQ(ParseFileRef(colon + ":c"), (FileRef{colon, "c"}));
  EXPECT_EQ(ParseFileRef("missing"), (FileRef{"missing", ""}));
  EXPECT_EQ(ParseFileRef("missing:layer.0"), (FileRef{"missing", "layer.0"}));
  std::filesystem::remove_all(folder);
}

TEST(FileRefTest, NamesOfTheServersTensors) {
  EXPECT_TRUE(IsTensorName("tensors/0123abcd"));
  for (const char* text : {"tensors/", "tensors/a.safetensors", "tensors/a:b", "./tensors/a",
                           "tensors/a/b", "tensor/a", "a"}) {
    EXPECT_FALSE(IsTensorName(text)) << text;
  }
}

}  // namespace
}  // namespace sparsefw::cli
