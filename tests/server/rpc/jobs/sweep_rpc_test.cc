// A sweep in one job, with the real solver: which masks are kept, and what the
// job's own numbers are.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

class SweepRpcTest : public testing::Test {
 protected:
  v1::JobSpec Sweep(v1::Sweep::Keep keep) {
    v1::JobSpec spec = server_.Layer(24, 32, 30);
    v1::Sweep& sweep = *spec.mutable_sweep();
    sweep.set_keep(keep);
    for (const double sparsity : {0.5, 0.75}) {
      for (const double alpha : {0.0, 0.5, 0.9}) {
        v1::SweepPoint& point = *sweep.add_points();
        point.set_alpha(alpha);
        point.mutable_pattern()->mutable_per_row()->set_sparsity(sparsity);
      }
    }
    return spec;
  }
  v1::Job Run(const v1::JobSpec& spec) {
    return server_.WaitForEnd(server_.MustCreate(spec).name());
  }
  grpc::Status TensorStatus(const std::string& name) {
    grpc::ClientContext context;
    v1::GetTensorRequest request;
    request.set_name(name);
    v1::Tensor tensor;
    return server_.tensors->GetTensor(&context, request, &tensor);
  }

  TestServer server_;
};

TEST_F(SweepRpcTest, KeepsTheBestMaskOfEveryPattern) {
  const v1::Job job = Run(Sweep(v1::Sweep::KEEP_BEST));
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  const v1::JobResult& result = job.result();
  ASSERT_EQ(result.sweep_size(), 6);
  for (const int first : {0, 3}) {
    int kept = 0;
    double least = result.sweep(first).result().losses().mask();
    for (int i = first; i < first + 3; ++i) {
      least = std::min(least, result.sweep(i).result().losses().mask());
    }
    for (int i = first; i < first + 3; ++i) {
      const v1::JobResult& point = result.sweep(i).result();
      if (point.mask().empty()) continue;
      ++kept;
      EXPECT_EQ(point.losses().mask(), least);
    }
    EXPECT_EQ(kept, 1);
  }
  const v1::SweepOutcome& best = result.sweep(result.best_point());
  EXPECT_LT(result.best_point(), 3);
  EXPECT_EQ(result.mask(), best.result().mask());
  EXPECT_EQ(result.losses().mask(), best.result().losses().mask());
  EXPECT_EQ(result.kept_count(), 24 * 16);
  EXPECT_TRUE(best.point().has_alpha());
  EXPECT_EQ(best.point().method(), v1::METHOD_SPARSEFW);
}

TEST_F(SweepRpcTest, DeletingTheJobDeletesEveryMask) {
  v1::JobSpec spec = Sweep(v1::Sweep::KEEP_ALL);
  spec.set_return_pruned_weight(true);
  const v1::Job job = Run(spec);
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  std::vector<std::string> names = {job.result().pruned_weight()};
  for (const v1::SweepOutcome& outcome : job.result().sweep()) {
    names.push_back(outcome.result().mask());
  }
  for (const std::string& name : names) EXPECT_TRUE(TensorStatus(name).ok()) << name;
  grpc::ClientContext context;
  v1::DeleteJobRequest request;
  request.set_name(job.name());
  google::protobuf::Empty empty;
  ASSERT_TRUE(server_.jobs->DeleteJob(&context, request, &empty).ok());
  for (const std::string& name : names) {
    EXPECT_EQ(TensorStatus(name).error_code(), grpc::NOT_FOUND) << name;
  }
}

TEST_F(SweepRpcTest, AFailedPointIsAnErrorOfItsOwnUnlessAllFail) {
  v1::JobSpec spec = Sweep(v1::Sweep::KEEP_BEST);
  for (v1::SweepPoint& point : *spec.mutable_sweep()->mutable_points()) {
    point.set_method(v1::METHOD_SPARSEGPT);
  }
  // No entry is too large, but it is indefinite: nothing to factorise.
  std::vector<float> gram(32 * 32, -0.5F);
  for (size_t i = 0; i < 32; ++i) gram[i * 33] = 1;
  v1::TensorSpec tensor;
  tensor.set_kind(v1::TENSOR_KIND_GRAM);
  tensor.set_dtype(v1::DATA_TYPE_F32);
  tensor.add_dims(32);
  tensor.add_dims(32);
  spec.set_gram(server_.Upload(
      tensor, std::string(reinterpret_cast<const char*>(gram.data()), gram.size() * 4)));
  const v1::Job failed = Run(spec);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_NE(failed.error().message().find("positive definite"), std::string::npos)
      << failed.error().message();

  spec.mutable_sweep()->mutable_points(4)->set_method(v1::METHOD_MAGNITUDE);
  const v1::Job job = Run(spec);
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(job.result().best_point(), 4);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(job.result().sweep(i).has_error(), i != 4) << i;
  EXPECT_FALSE(job.result().mask().empty());
}

}  // namespace
}  // namespace sparsefw::server
