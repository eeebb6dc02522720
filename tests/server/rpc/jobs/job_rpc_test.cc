// CreateJob, GetJob, CancelJob, DeleteJob: with the real solver.
#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "server/rpc/convert/convert.h"
#include "sparsefw/mask.h"
#include "sparsefw/options.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

class JobRpcTest : public testing::Test {
 protected:
  grpc::Status Create(const v1::CreateJobRequest& request, v1::Job* job) {
    grpc::ClientContext context;
    return server_.jobs->CreateJob(&context, request, job);
  }
  grpc::Status Try(const v1::JobSpec& spec) {
    v1::Job job;
    return server_.CreateJob(spec, &job);
  }
  grpc::Status DeleteTensor(const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteTensorRequest request;
    request.set_name(name);
    google::protobuf::Empty empty;
    return server_.tensors->DeleteTensor(&context, request, &empty);
  }
  grpc::Status DeleteJob(const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    request.set_name(name);
    google::protobuf::Empty empty;
    return server_.jobs->DeleteJob(&context, request, &empty);
  }
  Mask ReadMask(const v1::Job& job) {
    const std::string bytes = server_.Read(job.result().mask());
    absl::StatusOr<Mask> mask =
        Mask::FromBytes(job.shape(0), job.shape(1), std::as_bytes(std::span(bytes)));
    EXPECT_TRUE(mask.ok()) << mask.status();
    return mask.ok() ? *std::move(mask) : Mask();
  }

  TestServer server_;
};

TEST_F(JobRpcTest, SolvesALayer) {
  v1::JobSpec spec = server_.Layer(24, 32, 200);
  spec.set_return_pruned_weight(true);
  (*spec.mutable_labels())["layer"] = "q";
  const v1::Job accepted = server_.MustCreate(spec);
  EXPECT_EQ(accepted.name().rfind("jobs/", 0), 0U);
  const v1::Job job = server_.WaitForEnd(accepted.name());
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_GT(job.revision(), accepted.revision());
  const v1::JobResult& result = job.result();
  EXPECT_EQ(result.iterations(), 200);
  EXPECT_EQ(result.stop_reason(), v1::STOP_REASON_ITERATIONS);
  EXPECT_EQ(result.device(), "cpu");
  EXPECT_LE(result.losses().mask(), result.losses().warm_start());
  EXPECT_LE(result.losses().lower_bound(), result.losses().mask() * (1 + 1e-9));
  EXPECT_LT(result.losses().mask(), result.losses().full());
  EXPECT_GT(job.end_time().seconds(), 0);
  EXPECT_GT(job.expire_time().seconds(), job.end_time().seconds() + 86000);

  const Mask mask = ReadMask(job);
  for (int64_t row = 0; row < 24; ++row) EXPECT_EQ(mask.CountKeptInRow(row), 16);
  EXPECT_EQ(result.kept_count(), 24 * 16);

  const std::vector<float> weight = RandomValues(24 * 32, 1);
  const std::string bytes = server_.Read(result.pruned_weight());
  std::vector<float> pruned(24 * 32);
  ASSERT_EQ(bytes.size(), pruned.size() * sizeof(float));
  std::memcpy(pruned.data(), bytes.data(), bytes.size());
  for (int64_t i = 0; i < 24 * 32; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(pruned[at], mask.Get(i / 32, i % 32) ? weight[at] : 0.0F);
  }
}

TEST_F(JobRpcTest, EveryMethodAndPatternRuns) {
  v1::JobSpec spec = server_.Layer(16, 16, 20);
  for (const v1::Method method :
       {v1::METHOD_MAGNITUDE, v1::METHOD_WANDA, v1::METHOD_RIA, v1::METHOD_SPARSEFW}) {
    for (int pattern = 0; pattern < 3; ++pattern) {
      spec.set_method(method);
      spec.clear_pattern();
      if (pattern == 0) spec.mutable_pattern()->mutable_unstructured()->set_sparsity(0.6);
      if (pattern == 1) spec.mutable_pattern()->mutable_per_row()->set_sparsity(0.6);
      if (pattern == 2) {
        spec.mutable_pattern()->mutable_nm()->set_keep(2);
        spec.mutable_pattern()->mutable_nm()->set_group(4);
      }
      SCOPED_TRACE(spec.ShortDebugString());
      const v1::Job job = server_.WaitForEnd(server_.MustCreate(spec).name());
      EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
      EXPECT_EQ(ReadMask(job).CountKept(), job.result().kept_count());
    }
  }
}

TEST_F(JobRpcTest, AMaskOfOneJobStartsTheNext) {
  v1::JobSpec spec = server_.Layer(16, 16, 20);
  const v1::Job first = server_.WaitForEnd(server_.MustCreate(spec).name());
  spec.mutable_warm_start()->set_mask(first.result().mask());
  const v1::Job second = server_.WaitForEnd(server_.MustCreate(spec).name());
  ASSERT_EQ(second.state(), v1::JOB_STATE_SUCCEEDED) << second.error().message();
  EXPECT_NEAR(second.result().losses().warm_start(), first.result().losses().mask(),
              1e-9 * first.result().losses().mask());
  spec.mutable_pattern()->mutable_per_row()->set_sparsity(0.25);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "WARM_MASK_COUNT", "warm_start.mask"));

  std::vector<float> saliency(16 * 16, 1.0F);
  spec.mutable_warm_start()->set_saliency(
      server_.Upload(Spec(v1::TENSOR_KIND_SALIENCY, v1::DATA_TYPE_F32, 16, 16), BytesOf(saliency)));
  EXPECT_EQ(server_.WaitForEnd(server_.MustCreate(spec).name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobRpcTest, RefusesWhatIsWrongWithTheInputs) {
  const v1::JobSpec good = server_.Layer(8, 16, 10);
  v1::JobSpec spec = good;
  spec.set_weight("tensors/none");
  EXPECT_TRUE(Failed(Try(spec), grpc::FAILED_PRECONDITION, "TENSOR_NOT_FOUND",
                     "weight must name a tensor that the server has; got tensors/none"));
  spec.clear_weight();
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "SPEC_INVALID", "weight must name"));
  spec = good;
  std::swap(*spec.mutable_weight(), *spec.mutable_gram());
  EXPECT_TRUE(
      Failed(Try(spec), grpc::INVALID_ARGUMENT, "WRONG_TENSOR_KIND", "weight must be a WEIGHT"));
  spec = good;
  spec.set_gram(server_.UploadGram(8));
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "SHAPE_MISMATCH",
                     "gram must be [16, 16] to fit the weight; got [8, 8]"));
  spec = good;
  spec.mutable_warm_start()->set_saliency(server_.Upload(
      Spec(v1::TENSOR_KIND_SALIENCY, v1::DATA_TYPE_F32, 8, 8), std::string(8 * 8 * 4, '\0')));
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "SHAPE_MISMATCH", "warm_start.saliency"));
}

TEST_F(JobRpcTest, RefusesBadValuesNamingTheIndex) {
  const v1::JobSpec good = server_.Layer(8, 16, 10);
  std::vector<float> weight = RandomValues(8 * 16, 1);
  weight[3 * 16 + 7] = std::nanf("");
  v1::JobSpec spec = good;
  spec.set_weight(
      server_.Upload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 8, 16), BytesOf(weight)));
  const grpc::Status nan = Try(spec);
  EXPECT_TRUE(Failed(nan, grpc::INVALID_ARGUMENT, "NON_FINITE", "weight"));
  EXPECT_NE(nan.error_message().find('3'), std::string::npos) << nan.error_message();
  EXPECT_NE(nan.error_message().find('7'), std::string::npos) << nan.error_message();

  std::vector<float> gram = RandomGram(16, 2);
  gram[2 * 16 + 5] += 100;
  spec = good;
  spec.set_gram(
      server_.Upload(Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 16, 16), BytesOf(gram)));
  EXPECT_EQ(DetailsOf(Try(spec)).reason, "GRAM_ASYMMETRIC");
  gram = RandomGram(16, 2);
  gram[4 * 16 + 4] = -1;
  spec.set_gram(
      server_.Upload(Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 16, 16), BytesOf(gram)));
  EXPECT_EQ(DetailsOf(Try(spec)).reason, "GRAM_NEGATIVE_DIAGONAL");
  gram = RandomGram(16, 2);
  gram[4 * 16 + 4] = 0;
  spec.set_gram(
      server_.Upload(Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 16, 16), BytesOf(gram)));
  EXPECT_EQ(DetailsOf(Try(spec)).reason, "GRAM_NOT_POSITIVE_DEFINITE");
  // The values are read once; every job that names the tensor gets the same answer.
  EXPECT_EQ(Try(spec).error_message(), Try(spec).error_message());
  EXPECT_EQ(DetailsOf(Try(spec)).reason, "GRAM_NOT_POSITIVE_DEFINITE");
}

TEST_F(JobRpcTest, RefusesBadOptionsAndDevicesThatAreNotThere) {
  const v1::JobSpec good = server_.Layer(8, 16, 10);
  v1::JobSpec spec = good;
  spec.mutable_sparsefw()->set_alpha(1.5);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "alpha"));
  spec = good;
  spec.mutable_sparsefw()->set_iterations(0);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "iterations"));
  spec = good;
  spec.mutable_pattern()->mutable_nm()->set_keep(5);
  spec.mutable_pattern()->mutable_nm()->set_group(4);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "PATTERN_INVALID",
                     "keep must be in [1, group]; got keep=5, group=4"));
  spec = good;
  spec.set_priority(101);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "priority"));
  spec = good;
  spec.mutable_deadline()->set_seconds(-1);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "deadline"));
  spec = good;
  spec.set_method(v1::METHOD_SPARSEGPT);
  spec.mutable_refine()->set_swaps(true);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "swaps must be off"));
  spec = good;
  spec.mutable_sparsegpt()->set_damping(2);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "damping=2"));
  spec = good;
  spec.mutable_sweep()->add_points();
  spec.mutable_sweep()->add_points()->set_alpha(7);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "OPTION_INVALID",
                     "sweep.points[1]: alpha must be in [0, 1]; got alpha=7"));
  spec = good;
  spec.mutable_sweep()->add_points()->mutable_pattern()->mutable_nm()->set_keep(1);
  spec.mutable_sweep()->mutable_points(0)->mutable_pattern()->mutable_nm()->set_group(7);
  EXPECT_TRUE(Failed(Try(spec), grpc::INVALID_ARGUMENT, "PATTERN_INVALID", "sweep.points[0]: "));
  spec = good;
  spec.set_device("cuda:0");
  EXPECT_TRUE(Failed(Try(spec), grpc::FAILED_PRECONDITION, "DEVICE_UNAVAILABLE",
                     "cpu, reference; got cuda:0, and there is no CUDA device: SPARSEFW_CUDA_MODULE"
                     "=none turns CUDA off"));
  spec.set_device("cpu:7");
  EXPECT_TRUE(Failed(Try(spec), grpc::FAILED_PRECONDITION, "DEVICE_UNAVAILABLE", "cpu, reference"));
}

TEST_F(JobRpcTest, ADeviceOfTheJobsOwnChoiceRunsIt) {
  v1::JobSpec spec = server_.Layer(8, 16, 10);
  spec.set_device("reference");
  const v1::Job job = server_.WaitForEnd(server_.MustCreate(spec).name());
  EXPECT_EQ(job.result().device(), "reference");
}

TEST_F(JobRpcTest, CreateIsIdempotent) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = server_.Layer(8, 16, 10);
  request.set_request_id("job-1");
  v1::Job first;
  v1::Job second;
  ASSERT_TRUE(Create(request, &first).ok());
  ASSERT_TRUE(Create(request, &second).ok());
  EXPECT_EQ(first.name(), second.name());
  request.mutable_spec()->set_priority(1);
  EXPECT_TRUE(
      Failed(Create(request, &second), grpc::INVALID_ARGUMENT, "REQUEST_ID_REUSED", "job-1"));
}

// The same limits as for tensors.
TEST_F(JobRpcTest, RefusesLongOwnersAndBadRequestIds) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = server_.Layer(8, 16, 10);
  v1::Job job;
  request.set_owner(std::string(257, 'o'));
  EXPECT_TRUE(Failed(Create(request, &job), grpc::INVALID_ARGUMENT, "OWNER_INVALID", "got 257"));
  request.set_owner(std::string(256, 'o'));
  request.set_request_id(std::string(129, 'i'));
  EXPECT_TRUE(
      Failed(Create(request, &job), grpc::INVALID_ARGUMENT, "REQUEST_ID_INVALID", "got 129"));
  request.set_request_id(std::string(128, 'i'));
  ASSERT_TRUE(Create(request, &job).ok());
  EXPECT_EQ(job.owner().size(), 256U);
}

TEST_F(JobRpcTest, ValidateOnlyQueuesNothing) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = server_.Layer(8, 16, 10);
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_TRUE(Create(request, &job).ok());
  EXPECT_TRUE(job.name().empty());
  EXPECT_EQ(job.shape(0), 8);
  EXPECT_EQ(job.shape(1), 16);
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(server_.jobs->ListJobs(&context, v1::ListJobsRequest(), &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
  EXPECT_TRUE(DeleteTensor(request.spec().weight()).ok()) << "nothing holds it";
}

TEST_F(JobRpcTest, CancelsARunningJobAndKeepsItsMask) {
  const v1::Job job = server_.MustCreate(server_.Endless());
  server_.WaitUntilRunning(job.name());
  // Until there was a report, so a mask.
  while (!server_.GetJob(job.name()).has_progress()) std::this_thread::yield();
  ASSERT_TRUE(server_.Cancel(job.name()).ok());
  const v1::Job ended = server_.WaitForEnd(job.name());
  EXPECT_EQ(ended.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ended.result().stop_reason(), v1::STOP_REASON_CANCELLED);
  EXPECT_EQ(ReadMask(ended).CountKept(), 64 * 32);
  ASSERT_TRUE(server_.Cancel(job.name()).ok()) << "cancel is idempotent";
  EXPECT_EQ(server_.GetJob(job.name()).revision(), ended.revision());
}

TEST_F(JobRpcTest, CancelsAQueuedJobAtOnceAndLeavesAnEndedOneAlone) {
  const v1::Job running = server_.MustCreate(server_.Endless());
  server_.WaitUntilRunning(running.name());
  const v1::Job queued = server_.MustCreate(server_.Layer(8, 16, 10));
  EXPECT_EQ(server_.GetJob(queued.name()).state(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(server_.Cancel(queued.name()).ok());
  EXPECT_EQ(server_.GetJob(queued.name()).state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(server_.Cancel(running.name()).ok());
  EXPECT_EQ(server_.WaitForEnd(running.name()).state(), v1::JOB_STATE_CANCELLED);

  const v1::Job done = server_.WaitForEnd(server_.MustCreate(server_.Layer(8, 16, 10)).name());
  ASSERT_TRUE(server_.Cancel(done.name()).ok());
  EXPECT_EQ(server_.GetJob(done.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(Failed(server_.Cancel("jobs/none"), grpc::NOT_FOUND, "JOB_NOT_FOUND", "jobs/none"));
  EXPECT_TRUE(Failed(server_.Cancel(""), grpc::INVALID_ARGUMENT, "NAME_REQUIRED", "name"));
}

TEST_F(JobRpcTest, ADeadlineEndsTheJobWithTheBestMaskSoFar) {
  v1::JobSpec spec = server_.Endless();
  v1::Job job;
  EXPECT_TRUE(InTime(absl::Milliseconds(400), [&](absl::Duration time) {
    *spec.mutable_deadline() = ToProto(time);
    job = server_.WaitForEnd(server_.MustCreate(spec).name());
    return job.state() == v1::JOB_STATE_SUCCEEDED;
  })) << job.error().message();
  EXPECT_EQ(job.result().stop_reason(), v1::STOP_REASON_DEADLINE);
  EXPECT_EQ(ReadMask(job).CountKept(), 64 * 32);
}

TEST_F(JobRpcTest, TensorsOfALiveJobCannotBeDeleted) {
  const v1::JobSpec spec = server_.Endless();
  const v1::Job job = server_.MustCreate(spec);
  EXPECT_TRUE(Failed(DeleteTensor(spec.weight()), grpc::FAILED_PRECONDITION, "TENSOR_IN_USE",
                     spec.weight()));
  EXPECT_TRUE(
      Failed(DeleteJob(job.name()), grpc::FAILED_PRECONDITION, "JOB_NOT_FINISHED", job.name()));
  ASSERT_TRUE(server_.Cancel(job.name()).ok());
  const v1::Job ended = server_.WaitForEnd(job.name());
  EXPECT_TRUE(DeleteTensor(spec.weight()).ok());
  EXPECT_TRUE(DeleteTensor(spec.gram()).ok());
  EXPECT_TRUE(DeleteJob(job.name()).ok());
  EXPECT_EQ(server_.server->tensors().usage().tensors, 0) << "the mask goes with its job";
  EXPECT_TRUE(Failed(DeleteJob(job.name()), grpc::NOT_FOUND, "JOB_NOT_FOUND", job.name()));
}

TEST_F(JobRpcTest, TwoClientsAtOnce) {
  const auto client = [this](uint32_t seed) {
    const auto tensors = v1::TensorService::NewStub(server_.Connect());
    for (uint32_t round = 0; round < 5; ++round) {
      v1::JobSpec spec;
      spec.set_weight(server_.UploadWeight(16, 32, seed + round));
      spec.set_gram(server_.UploadGram(32, seed + round));
      spec.mutable_pattern()->mutable_unstructured()->set_sparsity(0.6);
      spec.mutable_sparsefw()->set_iterations(30);
      const v1::Job job = server_.WaitForEnd(server_.MustCreate(spec).name());
      EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
      EXPECT_EQ(ReadMask(job).CountKept(), 16 * 32 - static_cast<int64_t>(16 * 32 * 0.6));
    }
  };
  std::thread first(client, 100);
  std::thread second(client, 200);
  first.join();
  second.join();
}

// As the job's spec says afterwards.
TEST_F(JobRpcTest, PresetsShrinkByTheTokensOfTheGram) {
  constexpr int64_t kCols = 16;
  const auto shrinkage_of = [this](int64_t tokens) {
    v1::TensorSpec gram = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, kCols, kCols);
    gram.set_token_count(tokens);
    v1::JobSpec spec;
    spec.set_weight(server_.UploadWeight(8, kCols));
    spec.set_gram(server_.Upload(gram, BytesOf(RandomGram(kCols, 2))));
    spec.mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
    spec.set_preset(v1::PRESET_BEST);
    return server_.MustCreate(spec).spec().shrinkage();
  };
  EXPECT_DOUBLE_EQ(shrinkage_of(1000 * kCols), kShrinkagePerInput / 1000);
  EXPECT_DOUBLE_EQ(shrinkage_of(1), kShrinkageOfSingular);
  EXPECT_DOUBLE_EQ(shrinkage_of(0), ShrinkageFor(kCols, 0)) << "not known";
}

}  // namespace
}  // namespace sparsefw::server
