// SumGrams: parts of a Gram matrix in, their sum out.
#include <cstring>
#include <limits>
#include <thread>

#include "gtest/gtest.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kPartDim = 70;  // more than one block of rows

class SumGramsTest : public testing::Test {
 protected:
  std::string Upload(const std::vector<float>& values, int64_t tokens) {
    v1::TensorSpec spec = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, kPartDim, kPartDim);
    spec.set_token_count(tokens);
    return server_.Upload(spec, BytesOf(values));
  }
  grpc::Status Sum(const std::vector<std::string>& parts, v1::DataType dtype, v1::Tensor* sum,
                   const std::string& request_id = "", const std::string& owner = "") {
    grpc::ClientContext context;
    v1::SumGramsRequest request;
    request.set_owner(owner);
    for (const std::string& part : parts) request.add_grams(part);
    request.set_gram_dtype(dtype);
    request.set_request_id(request_id);
    return server_.tensors->SumGrams(&context, request, sum);
  }
  template <typename T>
  std::vector<T> Read(const std::string& tensor) {
    const std::string bytes = server_.Read(tensor);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  const std::vector<float> a_ = RandomGram(kPartDim, 1);
  const std::vector<float> b_ = RandomGram(kPartDim, 2);
  TestServer server_;
};

TEST_F(SumGramsTest, AddsInFloat64AndRoundsOnce) {
  const std::string a = Upload(a_, 30);
  const std::string b = Upload(b_, 12);
  v1::Tensor wide;
  ASSERT_TRUE(Sum({a, b}, v1::DATA_TYPE_F64, &wide).ok());
  v1::Tensor narrow;
  ASSERT_TRUE(Sum({a, b}, v1::DATA_TYPE_UNSPECIFIED, &narrow).ok());
  EXPECT_EQ(wide.spec().token_count(), 42);
  EXPECT_EQ(narrow.spec().dtype(), v1::DATA_TYPE_F32);
  const auto sum = Read<double>(wide.name());
  const auto rounded = Read<float>(narrow.name());
  ASSERT_EQ(sum.size(), a_.size());
  ASSERT_EQ(rounded.size(), a_.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(sum[i], double{a_[i]} + double{b_[i]});
    EXPECT_EQ(rounded[i], static_cast<float>(sum[i]));
  }
  // A sum is a part like any other.
  v1::Tensor more;
  ASSERT_TRUE(Sum({wide.name(), a}, v1::DATA_TYPE_F64, &more).ok());
  EXPECT_EQ(Read<double>(more.name())[5], sum[5] + double{a_[5]});
}

TEST_F(SumGramsTest, OneWithoutATokenCountLeavesTheSumWithoutOne) {
  v1::Tensor sum;
  ASSERT_TRUE(Sum({Upload(a_, 30), Upload(b_, 0)}, v1::DATA_TYPE_F32, &sum).ok());
  EXPECT_EQ(sum.spec().token_count(), 0);
}

TEST_F(SumGramsTest, TheSameRequestGivesTheSameTensor) {
  const std::vector<std::string> parts = {Upload(a_, 30), Upload(b_, 12)};
  v1::Tensor first;
  ASSERT_TRUE(Sum(parts, v1::DATA_TYPE_F32, &first, "sum 1").ok());
  v1::Tensor again;
  ASSERT_TRUE(Sum(parts, v1::DATA_TYPE_F32, &again, "sum 1").ok());
  EXPECT_EQ(again.name(), first.name());
  EXPECT_TRUE(Failed(Sum(parts, v1::DATA_TYPE_F64, &again, "sum 1"), grpc::INVALID_ARGUMENT,
                     "REQUEST_ID_REUSED", "sum 1"));
}

// Not the sum of others, whatever has the same shape.
TEST_F(SumGramsTest, TheSameIdWithOtherPartsOrderOrOwnerIsRefused) {
  const std::string a = Upload(a_, 30);
  const std::string b = Upload(b_, 12);
  v1::Tensor sum;
  ASSERT_TRUE(Sum({a, b}, v1::DATA_TYPE_F32, &sum, "id").ok());
  const auto refused = [](const grpc::Status& status) {
    return Failed(status, grpc::INVALID_ARGUMENT, "REQUEST_ID_REUSED", "\"id\"");
  };
  v1::Tensor other;
  EXPECT_TRUE(refused(Sum({a, Upload(b_, 12)}, v1::DATA_TYPE_F32, &other, "id")));
  EXPECT_TRUE(refused(Sum({b, a}, v1::DATA_TYPE_F32, &other, "id")));
  EXPECT_TRUE(refused(Sum({a, b}, v1::DATA_TYPE_F32, &other, "id", "bob")));
  ASSERT_TRUE(Sum({a, b}, v1::DATA_TYPE_UNSPECIFIED, &other, "id").ok()) << "F32 is the default";
  EXPECT_EQ(other.name(), sum.name());
}

TEST_F(SumGramsTest, AnUploadWithTheSameIdIsLeftAlone) {
  const std::vector<std::string> parts = {Upload(a_, 30), Upload(b_, 12)};
  v1::CreateUploadRequest request;
  *request.mutable_tensor() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, kPartDim, kPartDim);
  request.mutable_tensor()->set_token_count(42);
  request.set_request_id("id");
  v1::CreateUploadResponse created;
  grpc::ClientContext create;
  ASSERT_TRUE(server_.tensors->CreateUpload(&create, request, &created).ok());
  grpc::ClientContext write;
  v1::WriteTensorResponse written;
  const auto writer = server_.tensors->WriteTensor(&write, &written);
  v1::WriteTensorRequest chunk;
  chunk.set_upload(created.upload().name());
  *chunk.mutable_chunk() = MakeChunk(std::string(512, 'x'), 0, 512);
  writer->Write(chunk);
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());
  v1::Tensor sum;
  EXPECT_TRUE(Failed(Sum(parts, v1::DATA_TYPE_F32, &sum, "id"), grpc::INVALID_ARGUMENT,
                     "REQUEST_ID_REUSED", "\"id\""));
  v1::GetUploadRequest get;
  get.set_name(created.upload().name());
  v1::Upload upload;
  grpc::ClientContext context;
  ASSERT_TRUE(server_.tensors->GetUpload(&context, get, &upload).ok());
  EXPECT_EQ(upload.committed_size(), 512);

  // Nor is a sum an upload.
  ASSERT_TRUE(Sum(parts, v1::DATA_TYPE_F32, &sum, "sum").ok());
  request.set_request_id("sum");
  grpc::ClientContext again;
  EXPECT_TRUE(Failed(server_.tensors->CreateUpload(&again, request, &created),
                     grpc::INVALID_ARGUMENT, "REQUEST_ID_REUSED", "\"sum\""));
}

TEST_F(SumGramsTest, CallsOfTheSameRequestGetTheSameTensor) {
  constexpr int kWide = 500;
  constexpr size_t kCalls = 4;
  const v1::TensorSpec spec = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, kWide, kWide);
  std::vector<std::string> parts;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    parts.push_back(server_.Upload(spec, BytesOf(RandomGram(kWide, seed))));
  }
  for (int round = 0; round < 5; ++round) {
    std::vector<v1::Tensor> sums(kCalls);
    std::vector<grpc::Status> statuses(kCalls);
    std::vector<std::thread> callers;
    for (size_t call = 0; call < kCalls; ++call) {
      callers.emplace_back([&, call] {
        statuses[call] =
            Sum(parts, v1::DATA_TYPE_F64, &sums[call], "round " + std::to_string(round));
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (size_t call = 0; call < kCalls; ++call) {
      EXPECT_TRUE(statuses[call].ok()) << statuses[call].error_message();
      EXPECT_EQ(sums[call].name(), sums[0].name());
    }
  }
}

// Each is refused, and none as if another had not been.
TEST_F(SumGramsTest, CallsOfTheSameRequestFailAlike) {
  std::vector<float> large = a_;
  large.back() = std::numeric_limits<float>::max();
  const std::vector<std::string> parts = {Upload(large, 1), Upload(large, 1)};
  std::vector<grpc::Status> statuses(8);
  std::vector<std::thread> callers;
  for (grpc::Status& status : statuses) {
    callers.emplace_back([&] {
      v1::Tensor sum;
      status = Sum(parts, v1::DATA_TYPE_F32, &sum, "id");
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const grpc::Status& status : statuses) {
    EXPECT_TRUE(Failed(status, grpc::INVALID_ARGUMENT, "NON_FINITE", "at [69, 69]"));
  }
}

TEST_F(SumGramsTest, ASumBeyondItsDtypeIsRefusedAndLeavesNothing) {
  std::vector<float> large = a_;
  large[static_cast<size_t>(65 * kPartDim + 3)] = std::numeric_limits<float>::max();
  const std::string a = Upload(large, 1);
  const std::string b = Upload(large, 1);
  v1::Tensor sum;
  EXPECT_TRUE(Failed(Sum({a, b}, v1::DATA_TYPE_F32, &sum, "id"), grpc::INVALID_ARGUMENT,
                     "NON_FINITE", "at [65, 3]"));
  // The id is free again.
  EXPECT_TRUE(Sum({a, b}, v1::DATA_TYPE_F64, &sum, "id").ok());
}

TEST_F(SumGramsTest, RefusesWhatCannotBeAdded) {
  const std::string a = Upload(a_, 1);
  v1::Tensor sum;
  EXPECT_TRUE(Failed(Sum({}, v1::DATA_TYPE_F32, &sum), grpc::INVALID_ARGUMENT, "SPEC_INVALID",
                     "1 to 256 tensors"));
  EXPECT_TRUE(Failed(Sum({a, a}, v1::DATA_TYPE_F32, &sum), grpc::INVALID_ARGUMENT, "SPEC_INVALID",
                     "twice"));
  EXPECT_TRUE(Failed(Sum({a}, v1::DATA_TYPE_F16, &sum), grpc::INVALID_ARGUMENT, "SPEC_INVALID",
                     "gram_dtype"));
  EXPECT_TRUE(Failed(Sum({a, server_.UploadGram(8)}, v1::DATA_TYPE_F32, &sum),
                     grpc::INVALID_ARGUMENT, "SHAPE_MISMATCH", "[70, 70]"));
  EXPECT_TRUE(Failed(Sum({server_.UploadWeight(8, 8)}, v1::DATA_TYPE_F32, &sum),
                     grpc::INVALID_ARGUMENT, "WRONG_TENSOR_KIND", "WEIGHT"));
  EXPECT_TRUE(Failed(Sum({a, "tensors/none"}, v1::DATA_TYPE_F32, &sum), grpc::NOT_FOUND,
                     "TENSOR_NOT_FOUND", "tensors/none"));
}

}  // namespace
}  // namespace sparsefw::server
