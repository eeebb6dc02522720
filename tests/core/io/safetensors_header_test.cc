// Headers that are wrong in every way that a header can be.
#include <ostream>
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

struct BadHeader {
  std::string name;
  std::string header;
  size_t data_bytes = 0;
  std::vector<std::string> message;
};

void PrintTo(const BadHeader& header, std::ostream* os) { *os << header.name; }

std::string Tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return R"({"w":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
         R"(,"data_offsets":)" + std::string(offsets) + "}}";
}

std::string Nested(size_t depth, char open) { return R"({"w":)" + std::string(depth, open); }

std::vector<BadHeader> BadHeaders() {
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  return {
      {"Empty", "", 0, {"must be a JSON object"}},
      {"NoJson", "{hello}", 0, {"must be JSON", "at byte 2"}},
      {"Array", "[]", 0, {"must be a JSON object", "[]"}},
      {"ByteOrderMark", "\xEF\xBB\xBF{}", 0, {"begin with {"}},
      {"LeadingBlank", " {}", 0, {"begin with {"}},
      {"Unterminated", R"({"w":)" + good, 4, {"must be JSON"}},
      {"TextAfterwards", "{} x", 0, {"must be JSON"}},
      {"TwoObjects", "{}{}", 0, {"must be JSON"}},
      {"NulByte", std::string("{}\0", 3), 0, {"must be JSON", "byte 3 of it is 0"}},
      {"NotUtf8", "{\"\xFF\xFE\":" + good + "}", 4, {"UTF-8"}},
      {"OverlongUtf8", "{\"\xC0\xAF\":" + good + "}", 4, {"UTF-8"}},
      {"LoneSurrogate", R"({"\ud800":)" + good + "}", 4, {"must be JSON"}},
      {"HugeNumber", Tensor("F32", "[1e999]", "[0,4]"), 4, {"must be JSON"}},
      {"DeepObjects",
       [] {
         std::string text = "{";
         for (int i = 0; i < 200'000; ++i) text += R"("w":{)";
         return text;
       }(),
       0,
       {"\"w\"", "fields must be dtype, shape and data_offsets"}},
      {"DeepArrays", Nested(5'000'000, '['), 0, {"\"w\" must be an object; got an array"}},
      {"DeepShape",
       R"({"w":{"shape":)" + std::string(1'000'000, '['),
       0,
       {"tensor \"w\": shape must be whole numbers", "an array"}},
      {"TensorIsNumber", R"({"w":1})", 0, {"\"w\" must be an object; got the number 1"}},
      {"TensorIsNull", R"({"w":null})", 0, {"must be an object; got null"}},
      {"TensorIsBool", R"({"w":true})", 0, {"must be an object; got true"}},
      {"TensorIsString", R"({"w":"x"})", 0, {"must be an object; got the string \"x\""}},
      {"NameTwice", R"({"w":)" + good + R"(,"w":)" + good + "}", 4, {"unique", "\"w\" twice"}},
      {"NameTwiceEscaped", R"({"w":)" + good + R"(,"\u0077":)" + good + "}", 4, {"unique"}},
      {"MissingDType", R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4, {"dtype is missing"}},
      {"MissingShape", R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"shape is missing"}},
      {"MissingOffsets", R"({"w":{"dtype":"F32","shape":[1]}})", 4, {"data_offsets is missing"}},
      {"UnknownField", R"({"w":{"color":"red"}})", 0, {"fields must be", "\"color\""}},
      {"FieldTwice", R"({"w":{"dtype":"F32","dtype":"F32"}})", 0, {"dtype must be there once"}},
      {"DTypeNumber", R"({"w":{"dtype":1}})", 0, {"dtype must be a string; got the number 1"}},
      {"DTypeArray", R"({"w":{"dtype":["F32"]}})", 0, {"dtype must be a string; got an array"}},
      {"DTypeUnknown", Tensor("F31", "[1]", "[0,4]"), 4, {"safetensors knows", "\"F31\""}},
      {"DTypeLowerCase", Tensor("f32", "[1]", "[0,4]"), 4, {"safetensors knows"}},
      {"ShapeNumber", Tensor("F32", "1", "[0,4]"), 4, {"shape must be an array of whole numbers"}},
      {"ShapeOfStrings", Tensor("F32", R"(["1"])", "[0,4]"), 4, {"shape must be whole numbers"}},
      {"DimNegative", Tensor("F32", "[-1]", "[0,4]"), 4, {"shape must be whole numbers", "-1"}},
      {"DimFraction", Tensor("F32", "[1.5]", "[0,4]"), 4, {"shape must be whole numbers", "1.5"}},
      {"DimWholeFloat", Tensor("F32", "[1.0]", "[0,4]"), 4, {"shape must be whole numbers"}},
      {"DimNull", Tensor("F32", "[null]", "[0,4]"), 4, {"shape must be whole numbers", "null"}},
      {"DimOver63Bits",
       Tensor("F32", "[9223372036854775808]", "[0,4]"),
       4,
       {"2^63-1", "9223372036854775808"}},
      {"ProductOverflows", Tensor("F32", "[4294967296,4294967296]", "[0,4]"), 4, {"below 2^63"}},
      // 2^62 elements are 2^64 bytes, which are 0 in 64 bits.
      {"BytesWrapAround", Tensor("F32", "[4611686018427387904]", "[0,0]"), 0, {"below 2^63"}},
      {"ManyDimsOverflow",
       Tensor("F64", "[65536,65536,65536,65536,65536,65536,65536,65536,65536]", "[0,0]"),
       0,
       {"below 2^63"}},
      {"RankTooHigh",
       Tensor(
           "F32",
           [] {
             std::string shape = "[1";
             for (int i = 0; i < 1'000'000; ++i) shape += ",1";
             return shape + "]";
           }(),
           "[0,4]"),
       4,
       {"shape must be at most 64 numbers"}},
      {"HalfByte", Tensor("F4", "[3]", "[0,1]"), 1, {"whole bytes"}},
      {"OneOffset", Tensor("F32", "[1]", "[0]"), 4, {"two numbers; got 1"}},
      {"NoOffsets", Tensor("F32", "[1]", "[]"), 4, {"two numbers; got 0"}},
      {"ThreeOffsets", Tensor("F32", "[1]", "[0,4,8]"), 4, {"at most 2 numbers"}},
      {"OffsetNegative", Tensor("F32", "[1]", "[-4,0]"), 4, {"data_offsets must be", "-4"}},
      {"OffsetFraction", Tensor("F32", "[1]", "[0,4.0]"), 4, {"data_offsets must be", "4.0"}},
      {"OffsetOver63Bits", Tensor("F32", "[1]", "[0,18446744073709551615]"), 4, {"2^63-1"}},
      {"OffsetsReversed", Tensor("F32", "[1]", "[4,0]"), 4, {"must not decrease", "[4, 0]"}},
      {"OffsetBeyondFile", Tensor("F32", "[2]", "[0,8]"), 4, {"within the 4 bytes", "[0, 8]"}},
      {"OffsetFarBeyond",
       Tensor("U8", "[9223372036854775807]", "[0,9223372036854775807]"),
       4,
       {"within the 4 bytes"}},
      {"TooFewBytes", Tensor("F32", "[2]", "[0,4]"), 4, {"must be 8 bytes", "4 bytes"}},
      {"TooManyBytes", Tensor("F16", "[1]", "[0,4]"), 4, {"must be 2 bytes", "4 bytes"}},
      {"TailUnused", Tensor("F32", "[1]", "[0,4]"), 9, {"must fill the file", "byte 4", "9 bytes"}},
      {"DataButNoTensor", "{}", 1, {"must fill the file"}},
      {"HoleAtStart", Tensor("F32", "[1]", "[4,8]"), 8, {"leave no hole", "[4, 8]"}},
      {"Hole",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3,
       {"tensor \"b\"", "leave no hole", "[2, 3]", "end at 1"}},
      {"Overlap",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3,
       {"tensor \"b\"", "not overlap", "[1, 3]", "end at 2"}},
      {"SameBytesTwice",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2,
       {"not overlap"}},
      {"MetadataNumber",
       R"({"__metadata__":{"a":1}})",
       0,
       {"__metadata__ must hold strings; got the number 1", "\"a\""}},
      {"MetadataObject", R"({"__metadata__":{"a":{}}})", 0, {"must hold strings; got an object"}},
      {"MetadataNull", R"({"__metadata__":{"a":null}})", 0, {"must hold strings; got null"}},
      {"MetadataIsString", R"({"__metadata__":"a"})", 0, {"must be an object"}},
      {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, {"once; got it twice"}},
      {"MetadataKeyTwice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, {"a key twice", "\"a\""}},
      {"LongNameIsCut", "{\"" + std::string(1'000'000, 'n') + "\":3}", 0, {"nnn...\""}},
      {"ControlCharacterIsEscaped", R"({"a\u0007b":3})", 0, {R"(a\007b)"}},
  };
}

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRefusedWithPathAndRule) {
  const testing::TempFolder folder;
  const std::string path = folder.File("bad.safetensors");
  testing::WriteFile(path, FileOf(GetParam().header, std::string(GetParam().data_bytes, '\0')));

  const auto file = SafetensorsFile::Open(path);

  ASSERT_THAT(file, StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", path + ": "));
  for (const std::string& part : GetParam().message) {
    EXPECT_THAT(file, StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", part));
  }
  EXPECT_LT(file.status().message().size(), path.size() + 600) << "a message is one sentence";
}

INSTANTIATE_TEST_SUITE_P(All, BadHeaderTest, ::testing::ValuesIn(BadHeaders()),
                         [](const auto& param) { return param.param.name; });

TEST(SafetensorsHeader, FieldsMayComeInAnyOrder) {
  const testing::TempFolder folder;
  const std::string path = folder.File("t.safetensors");
  testing::WriteFile(
      path, FileOf(R"({"w":{"data_offsets":[0,4],"shape":[2],"dtype":"F16"}}   )", "abcd"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  ASSERT_EQ(file->entries().size(), 1U);
  EXPECT_EQ(file->entries()[0].dtype_name, "F16");
  EXPECT_EQ(file->entries()[0].shape, (std::vector<int64_t>{2}));
}

TEST(SafetensorsHeader, ReadsEveryDTypeOfTheFormat) {
  const std::vector<std::pair<std::string, int>> bits = {
      {"BOOL", 8},        {"U8", 8},         {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8},     {"I16", 16},       {"U16", 16}, {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},       {"F32", 32}, {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64},       {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
  const testing::TempFolder folder;
  for (const auto& [dtype, size] : bits) {
    const std::string path = folder.File(dtype);
    const auto bytes = static_cast<size_t>(12 * size / 8);
    testing::WriteFile(path, FileOf(Tensor(dtype, "[3,4]", "[0," + std::to_string(bytes) + "]"),
                                    std::string(bytes, 'x')));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
    EXPECT_EQ(file->entries()[0].dtype_name, dtype);
    EXPECT_EQ(file->entries()[0].bytes.size(), bytes);
  }
}

}  // namespace
}  // namespace sparsefw
