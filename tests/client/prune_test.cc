// The one-call form over a fake server.
#include <gmock/gmock.h>

#include "sparsefw/crc32c.h"
#include "tests/client/client_fixture.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using testing::Error;
using testing::Event;
using testing::kBroken;

class PruneTest : public testing::ClientTest {
 protected:
  PruneInput Input() const {
    PruneInput input;
    input.spec.set_method(v1::METHOD_WANDA);
    input.weight = WeightSpec(DType::kF32, 20, 30);
    input.weight_bytes = View(weight_);
    input.activations = ActivationSpec(DType::kF16, 30);
    input.activation_bytes = View(activations_);
    return input;
  }
  static v1::PruneResponse Accepted() {
    v1::PruneResponse response;
    response.mutable_accepted()->set_job("jobs/7");
    return response;
  }
  static v1::PruneResponse MaskChunk(const std::string& bytes, int64_t offset, uint32_t flip = 0) {
    v1::PruneResponse response;
    response.mutable_mask()->set_offset(offset);
    response.mutable_mask()->set_data(bytes);
    response.mutable_mask()->set_crc32c(Crc32c(View(bytes)) ^ flip);
    return response;
  }
  static v1::PruneResponse Final() {
    v1::PruneResponse response;
    response.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
    return response;
  }

  const std::string weight_ = RandomBytes(2400, 1);
  const std::string activations_ = RandomBytes(60 * 41, 2);
};

TEST_F(PruneTest, OneCallCarriesEverything) {
  v1::PruneResponse event;
  *event.mutable_event() = Event(v1::JobEvent::KIND_PROGRESS, v1::JOB_STATE_RUNNING, 2);
  const std::string mask = RandomBytes(80, 3);
  server_.jobs.prune_responses = {Accepted(), event, MaskChunk(mask.substr(0, 50), 0),
                                  MaskChunk(mask.substr(50), 50), Final()};
  int events = 0;
  const auto output = client_->Prune(Input(), [&](const v1::JobEvent&) { ++events; });
  SPARSEFW_ASSERT_OK(output);
  EXPECT_EQ(events, 1);
  EXPECT_EQ(output->job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(output->mask, std::vector<std::byte>(View(mask).begin(), View(mask).end()));

  ASSERT_EQ(server_.jobs.pruned.size(), 1u + 3u + 3u);
  EXPECT_EQ(server_.jobs.pruned[0].header().weight().dims(1), 30);
  EXPECT_TRUE(server_.jobs.pruned[0].header().has_activations());
  std::string weight;
  std::string activations;
  for (const auto& request : server_.jobs.pruned) {
    weight += request.weight().data();
    activations += request.activations().data();
  }
  EXPECT_EQ(weight, weight_);
  EXPECT_EQ(activations, activations_);
}

TEST_F(PruneTest, ABadMaskIsDataLoss) {
  server_.jobs.prune_responses = {Accepted(), MaskChunk("ab", 0, 1), Final()};
  EXPECT_THAT(client_->Prune(Input()),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", "mask"));
  server_.jobs.prune_responses = {Accepted(), MaskChunk("ab", 5), Final()};
  EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kInternal, "PROTOCOL", "mask"));
}

TEST_F(PruneTest, NoMoreIsTakenThanTheLayerHas) {
  const std::string mask = RandomBytes(80, 3);
  const std::vector<v1::PruneResponse> bad[] = {
      {Accepted(), MaskChunk(mask + "x", 0), Final()},
      {Accepted(), MaskChunk(mask, 0), MaskChunk("x", 80), Final()},
      {Accepted(), MaskChunk("", 0), Final()},
      {Accepted(), MaskChunk(mask.substr(1), 0), Final()},
      {Accepted(), MaskChunk(mask, 0), Final(), Final()},
  };
  for (const auto& responses : bad) {
    server_.jobs.prune_responses = responses;
    EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kInternal, "PROTOCOL"));
  }
}

TEST_F(PruneTest, TheServersRefusalIsReturned) {
  server_.jobs.prune_status = Error(grpc::INVALID_ARGUMENT, "NaN", "NON_FINITE");
  EXPECT_THAT(client_->Prune(Input()),
              StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "NaN"));
  server_.jobs.prune_status = grpc::Status::OK;
  EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kInternal, "PROTOCOL", "final"));
}

TEST_F(PruneTest, ADetachedJobIsFollowedWhenTheStreamBreaks) {
  server_.jobs.prune_responses = {Accepted()};
  server_.jobs.prune_status = kBroken;
  const std::string mask = RandomBytes(80, 3);
  v1::JobEvent end = Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_SUCCEEDED, 4);
  end.mutable_job()->mutable_result()->set_mask(server_.tensors.Put(MaskSpec(20, 30), mask));
  server_.jobs.watches = {{{end}, grpc::Status::OK}};
  EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kUnavailable));

  PruneInput detached = Input();
  detached.detach = true;
  const auto output = client_->Prune(detached);
  SPARSEFW_ASSERT_OK(output);
  EXPECT_EQ(output->mask, std::vector<std::byte>(View(mask).begin(), View(mask).end()));
}

TEST_F(PruneTest, AJobIsFollowedOverTheRestartOfItsServer) {
  server_.jobs.prune_responses = {Accepted()};
  server_.jobs.prune_status = Error(grpc::UNAVAILABLE, "draining", "DRAINING", {}, 1);
  const std::string mask = RandomBytes(80, 3);
  v1::JobEvent end = Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_SUCCEEDED, 4);
  end.mutable_job()->mutable_result()->set_mask(server_.tensors.Put(MaskSpec(20, 30), mask));
  server_.jobs.watches = {{{end}, grpc::Status::OK}};
  const auto output = client_->Prune(Input());
  SPARSEFW_ASSERT_OK(output);
  EXPECT_EQ(output->mask, std::vector<std::byte>(View(mask).begin(), View(mask).end()));
}

TEST_F(PruneTest, ContradictoryInputIsRefusedBeforeItTravels) {
  PruneInput both = Input();
  both.gram = GramTensorSpec(DType::kF32, 30);
  both.gram_bytes = both.weight_bytes;
  EXPECT_THAT(client_->Prune(both),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "not both"));
  PruneInput named = Input();
  named.spec.set_weight("tensors/1");
  EXPECT_THAT(client_->Prune(named),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "empty"));
  PruneInput small = Input();
  small.weight_bytes = small.weight_bytes.first(10);
  EXPECT_THAT(client_->Prune(small),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "weight", "2400"));
  EXPECT_TRUE(server_.jobs.pruned.empty());
}

}  // namespace
}  // namespace sparsefw::client
