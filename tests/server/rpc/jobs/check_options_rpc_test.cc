// CheckJobOptions: what CreateJob would say, before there are tensors.
#include <string>

#include "gtest/gtest.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

class CheckJobOptionsTest : public testing::Test {
 protected:
  CheckJobOptionsTest() {
    spec_.mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
    *request_.mutable_weight() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 8, 16);
    *request_.mutable_gram() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 16, 16);
  }
  grpc::Status Check() {
    *request_.mutable_spec() = spec_;
    grpc::ClientContext context;
    v1::CheckJobOptionsResponse response;
    return server_.jobs->CheckJobOptions(&context, request_, &response);
  }
  // Check and CreateJob refuse the same spec with the same code, message, and details.
  grpc::Status CheckAsCreate() {
    const grpc::Status checked = Check();
    v1::JobSpec whole = spec_;
    if (whole.weight().empty()) whole.set_weight(server_.UploadWeight(8, 16));
    if (whole.gram().empty()) whole.set_gram(server_.UploadGram(16));
    v1::Job job;
    const grpc::Status created = server_.CreateJob(whole, &job);
    EXPECT_EQ(checked.error_code(), created.error_code());
    EXPECT_EQ(checked.error_message(), created.error_message());
    // Not the bytes: the order of a map's entries is not fixed.
    if (!created.ok()) {
      EXPECT_EQ(DetailsOf(checked).reason, DetailsOf(created).reason);
      EXPECT_EQ(DetailsOf(checked).metadata, DetailsOf(created).metadata);
    }
    return checked;
  }

  grpc::Status DeleteTensor(const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteTensorRequest request;
    request.set_name(name);
    google::protobuf::Empty empty;
    return server_.tensors->DeleteTensor(&context, request, &empty);
  }

  TestServer server_;
  v1::JobSpec spec_;
  v1::CheckJobOptionsRequest request_;
};

TEST_F(CheckJobOptionsTest, NeedsNoTensorsAndLeavesNothing) {
  EXPECT_TRUE(Check().ok());
  request_.clear_gram();
  request_.mutable_activations()->set_d_in(16);
  request_.mutable_activations()->set_activation_dtype(v1::DATA_TYPE_BF16);
  EXPECT_TRUE(Check().ok());
  request_.clear_gram_source();
  request_.clear_weight();
  EXPECT_TRUE(Check().ok()) << "nothing is known of the tensors";
  const TensorStoreUsage usage = server_.server->tensors().usage();
  EXPECT_EQ(usage.uploads + usage.tensors, 0);
  EXPECT_EQ(usage.used_bytes, 0);
}

TEST_F(CheckJobOptionsTest, RefusesAsCreateJobDoes) {
  spec_.mutable_sparsefw()->set_alpha(2);
  EXPECT_TRUE(Failed(CheckAsCreate(), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "alpha=2"));
  spec_.clear_sparsefw();
  spec_.mutable_pattern()->mutable_nm()->set_keep(2);
  spec_.mutable_pattern()->mutable_nm()->set_group(5);
  EXPECT_TRUE(Failed(CheckAsCreate(), grpc::INVALID_ARGUMENT, "PATTERN_INVALID", "5"));
  spec_.mutable_pattern()->mutable_nm()->set_group(4);
  spec_.set_priority(101);
  EXPECT_TRUE(Failed(CheckAsCreate(), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "priority=101"));
  spec_.clear_priority();
  spec_.set_device("tpu");
  EXPECT_TRUE(Failed(CheckAsCreate(), grpc::FAILED_PRECONDITION, "DEVICE_UNAVAILABLE", "tpu"));
  spec_.clear_device();
  spec_.clear_pattern();
  EXPECT_TRUE(Failed(CheckAsCreate(), grpc::INVALID_ARGUMENT, "PATTERN_INVALID", "none"));
}

TEST_F(CheckJobOptionsTest, RefusesAPointOfASweepByItsNumber) {
  v1::SweepPoint* point = spec_.mutable_sweep()->add_points();
  point = spec_.mutable_sweep()->add_points();
  point->mutable_pattern()->mutable_nm()->set_keep(1);
  point->mutable_pattern()->mutable_nm()->set_group(3);
  EXPECT_TRUE(
      Failed(CheckAsCreate(), grpc::INVALID_ARGUMENT, "PATTERN_INVALID", "sweep.points[1]: "));
}

TEST_F(CheckJobOptionsTest, RefusesALayerThatNeverFits) {
  ServerConfig config;
  config.solve_memory_bytes = 1 << 20;
  TestServer small(config);
  *request_.mutable_weight() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 4096, 4096);
  request_.clear_gram();
  *request_.mutable_spec() = spec_;
  grpc::ClientContext context;
  v1::CheckJobOptionsResponse response;
  const grpc::Status status = small.jobs->CheckJobOptions(&context, request_, &response);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(DetailsOf(status).has_retry) << "waiting does not help";
}

TEST_F(CheckJobOptionsTest, RefusesALayerWhoseMemoryIsNo64BitNumber) {
  spec_.set_method(v1::METHOD_ALPS);
  *request_.mutable_weight() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 1, 1 << 30);
  request_.clear_gram();
  EXPECT_TRUE(Failed(Check(), grpc::RESOURCE_EXHAUSTED, "HOST_MEMORY",
                     "a layer of [1, 1073741824] needs about 9223372036854775807 bytes"));
}

TEST_F(CheckJobOptionsTest, NamesTheActivationsWhoseWidthIsWrong) {
  request_.clear_gram();
  request_.mutable_activations()->set_d_in(17);
  request_.mutable_activations()->set_activation_dtype(v1::DATA_TYPE_BF16);
  const grpc::Status status = Check();
  EXPECT_TRUE(Failed(status, grpc::INVALID_ARGUMENT, "SHAPE_MISMATCH",
                     "activations.d_in must be 16 to fit the weight; got 17"));
  EXPECT_EQ(DetailsOf(status).metadata.at("field"), "activations");
}

TEST_F(CheckJobOptionsTest, NamesTheInputInTheMetadata) {
  *request_.mutable_gram() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 8, 8);
  grpc::Status status = Check();
  EXPECT_TRUE(Failed(status, grpc::INVALID_ARGUMENT, "SHAPE_MISMATCH", "gram must be [16, 16]"));
  EXPECT_EQ(DetailsOf(status).metadata.at("field"), "gram");
  *request_.mutable_gram() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F16, 16, 16);
  status = Check();
  EXPECT_TRUE(Failed(status, grpc::INVALID_ARGUMENT, "SPEC_INVALID", "dtype of a GRAM"));
  EXPECT_EQ(DetailsOf(status).metadata.at("field"), "gram");
  *request_.mutable_gram() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 16, 16);
  *request_.mutable_warm_start() = Spec(v1::TENSOR_KIND_MASK, v1::DATA_TYPE_U1, 8, 15);
  status = Check();
  EXPECT_TRUE(Failed(status, grpc::INVALID_ARGUMENT, "SHAPE_MISMATCH", "[8, 15]"));
  EXPECT_EQ(DetailsOf(status).metadata.at("field"), "warm_start.mask");
  *request_.mutable_warm_start() = Spec(v1::TENSOR_KIND_SALIENCY, v1::DATA_TYPE_F32, 9, 16);
  EXPECT_EQ(DetailsOf(Check()).metadata.at("field"), "warm_start.saliency");
  request_.mutable_warm_start()->set_kind(v1::TENSOR_KIND_WEIGHT);
  EXPECT_TRUE(Failed(Check(), grpc::INVALID_ARGUMENT, "SPEC_INVALID",
                     "warm_start.kind must be MASK or SALIENCY; got WEIGHT"));
  request_.clear_warm_start();
  *request_.mutable_weight() = Spec(v1::TENSOR_KIND_SALIENCY, v1::DATA_TYPE_F32, 8, 16);
  EXPECT_TRUE(
      Failed(Check(), grpc::INVALID_ARGUMENT, "SPEC_INVALID", "weight.kind must be WEIGHT"));
}

TEST_F(CheckJobOptionsTest, LooksUpTheTensorsThatTheSpecNames) {
  spec_.set_weight(server_.UploadWeight(8, 16));
  EXPECT_TRUE(Failed(Check(), grpc::INVALID_ARGUMENT, "SPEC_INVALID", "at most one of"));
  request_.clear_weight();
  EXPECT_TRUE(Check().ok());
  spec_.mutable_pattern()->mutable_nm()->set_keep(2);
  spec_.mutable_pattern()->mutable_nm()->set_group(5);
  EXPECT_TRUE(Failed(Check(), grpc::INVALID_ARGUMENT, "PATTERN_INVALID", "5"));
  spec_.mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  request_.clear_gram();
  spec_.set_gram("tensors/none");
  const grpc::Status missing = CheckAsCreate();
  EXPECT_TRUE(Failed(missing, grpc::FAILED_PRECONDITION, "TENSOR_NOT_FOUND", "tensors/none"));
  EXPECT_EQ(DetailsOf(missing).metadata.at("field"), "gram");
  EXPECT_EQ(DetailsOf(missing).metadata.at("tensor"), "tensors/none");
  spec_.set_gram(spec_.weight());
  EXPECT_TRUE(Failed(CheckAsCreate(), grpc::INVALID_ARGUMENT, "WRONG_TENSOR_KIND", "a WEIGHT"));
  EXPECT_TRUE(DeleteTensor(spec_.weight()).ok()) << "nothing holds it";
}

}  // namespace
}  // namespace sparsefw::server
