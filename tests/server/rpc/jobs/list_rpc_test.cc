// ListJobs, ListTensors and ListUploads, over a real socket.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

class ListRpcTest : public testing::Test {
 protected:
  TestServer server_;
};

TEST_F(ListRpcTest, JobsByStateAndLabelInPages) {
  v1::JobSpec spec = server_.Layer(8, 16, 5);
  std::vector<std::string> even;
  for (int i = 0; i < 6; ++i) {
    (*spec.mutable_labels())["parity"] = i % 2 == 0 ? "even" : "odd";
    const v1::Job job = server_.WaitForEnd(server_.MustCreate(spec).name());
    if (i % 2 == 0) even.push_back(job.name());
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  request.add_states(v1::JOB_STATE_SUCCEEDED);
  (*request.mutable_labels())["parity"] = "even";
  std::vector<std::string> listed;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(server_.jobs->ListJobs(&context, request, &response).ok());
    EXPECT_LE(response.jobs_size(), 2);
    for (const v1::Job& job : response.jobs()) listed.push_back(job.name());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, std::vector<std::string>(even.rbegin(), even.rend()));

  request.Clear();
  request.add_states(v1::JOB_STATE_FAILED);
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  ASSERT_TRUE(server_.jobs->ListJobs(&context, request, &response).ok());
  EXPECT_EQ(response.jobs_size(), 0);
}

TEST_F(ListRpcTest, APageOfLargeJobsStaysWithinAMessage) {
  v1::JobSpec spec = server_.Layer(4, 4, 1);
  for (int i = 0; i < 64; ++i) {
    (*spec.mutable_labels())[std::to_string(i) + std::string(60, 'k')] = std::string(256, 'v');
  }
  constexpr int kJobs = 150;  // of about 20 KiB
  for (int i = 0; i < kJobs; ++i) server_.MustCreate(spec);
  int listed = 0;
  int pages = 0;
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    const grpc::Status status = server_.jobs->ListJobs(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_LE(response.ByteSizeLong(), 2U << 20);
    listed += response.jobs_size();
    ++pages;
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, kJobs);
  EXPECT_GT(pages, 1);
}

TEST_F(ListRpcTest, TensorsInPagesNewestFirst) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < 5; ++i) names.push_back(server_.UploadWeight(2, 2, i));
  std::vector<std::string> listed;
  v1::ListTensorsRequest request;
  request.set_page_size(2);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListTensorsResponse response;
    ASSERT_TRUE(server_.tensors->ListTensors(&context, request, &response).ok());
    EXPECT_LE(response.tensors_size(), 2);
    for (const v1::Tensor& tensor : response.tensors()) listed.push_back(tensor.name());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(listed, std::vector<std::string>(names.rbegin(), names.rend()));
  request.set_page_token("no such token");
  grpc::ClientContext context;
  v1::ListTensorsResponse response;
  EXPECT_EQ(DetailsOf(server_.tensors->ListTensors(&context, request, &response)).reason,
            "PAGE_TOKEN_INVALID");
}

TEST_F(ListRpcTest, TensorsByKind) {
  const std::string weight = server_.UploadWeight(2, 2, 1);
  const auto listed = [this](int kind, v1::ListTensorsResponse* response) {
    grpc::ClientContext context;
    v1::ListTensorsRequest request;
    request.add_kinds(static_cast<v1::TensorKind>(kind));
    return server_.tensors->ListTensors(&context, request, response);
  };
  v1::ListTensorsResponse response;
  ASSERT_TRUE(listed(v1::TENSOR_KIND_WEIGHT, &response).ok());
  ASSERT_EQ(response.tensors_size(), 1);
  EXPECT_EQ(response.tensors(0).name(), weight);
  ASSERT_TRUE(listed(v1::TENSOR_KIND_PRUNED_WEIGHT, &response).ok());
  EXPECT_EQ(response.tensors_size(), 0);
  EXPECT_TRUE(Failed(listed(99, &response), grpc::INVALID_ARGUMENT, "ENUM_UNKNOWN", "kinds"));
  EXPECT_TRUE(Failed(listed(0, &response), grpc::INVALID_ARGUMENT, "SPEC_INVALID", "kinds"));
}

TEST_F(ListRpcTest, Uploads) {
  v1::CreateUploadRequest create;
  *create.mutable_tensor() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 2, 2);
  v1::CreateUploadResponse created;
  grpc::ClientContext creation;
  ASSERT_TRUE(server_.tensors->CreateUpload(&creation, create, &created).ok());
  const std::string upload = created.upload().name();
  grpc::ClientContext context;
  v1::ListUploadsResponse response;
  ASSERT_TRUE(server_.tensors->ListUploads(&context, {}, &response).ok());
  ASSERT_EQ(response.uploads_size(), 1);
  EXPECT_EQ(response.uploads(0).name(), upload);
  EXPECT_EQ(response.uploads(0).spec().kind(), v1::TENSOR_KIND_WEIGHT);
  grpc::ClientContext refused;
  v1::ListUploadsRequest request;
  request.set_page_token("no such token");
  EXPECT_EQ(DetailsOf(server_.tensors->ListUploads(&refused, request, &response)).reason,
            "PAGE_TOKEN_INVALID");
}

}  // namespace
}  // namespace sparsefw::server
