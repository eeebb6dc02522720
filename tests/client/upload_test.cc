// Uploads over a fake server: resume at any byte, what is retried, what is not.
#include <gmock/gmock.h>

#include <array>
#include <set>
#include <thread>

#include "tests/client/client_fixture.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::Error;
using testing::FastOptions;
using ::testing::Le;
using testing::StreamFault;

const grpc::Status kBrokenStream(grpc::UNAVAILABLE, "Socket closed");

class UploadTest : public testing::ClientTest {
 protected:
  // 60 x 60 F32: 14400 bytes, 15 chunks of at most 1000.
  const v1::TensorSpec spec_ = WeightSpec(DType::kF32, 60, 60);
  const std::string bytes_ = RandomBytes(14400, 11);

  absl::StatusOr<v1::Tensor> Upload() { return client_->UploadTensor(spec_, View(bytes_)); }
};

TEST_F(UploadTest, ArrivesWholeInChunks) {
  std::vector<int64_t> seen;
  const auto tensor = client_->UploadTensor(spec_, View(bytes_), [&](const TransferProgress& p) {
    EXPECT_EQ(p.total_bytes, 14400);
    seen.push_back(p.done_bytes);
  });
  SPARSEFW_ASSERT_OK(tensor);
  EXPECT_EQ(server_.tensors.Bytes(tensor->name()), bytes_);
  EXPECT_EQ(server_.tensors.chunk_sizes.size(), 15u);
  EXPECT_THAT(server_.tensors.chunk_sizes, Each(Le(1000)));
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), 14400);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_F(UploadTest, ResumesAtRandomBytes) {
  std::mt19937 random(2024);
  for (int round = 0; round < 25; ++round) {
    std::set<int64_t> breaks;
    for (int i = 0; i < 4; ++i) breaks.insert(static_cast<int64_t>(random() % 14400));
    std::string where;
    for (const int64_t at : breaks) {
      server_.tensors.stream_faults.push_back({at, kBrokenStream});
      where.append(" ").append(std::to_string(at));
    }
    server_.tensors.first_offsets.clear();
    const auto tensor = Upload();
    ASSERT_TRUE(tensor.ok()) << tensor.status() << " broken at" << where;
    EXPECT_EQ(server_.tensors.Bytes(tensor->name()), bytes_) << "broken at" << where;
    // Every stream begins where the one before was cut off: nothing is sent twice.
    std::vector<int64_t> expected{0};
    expected.insert(expected.end(), breaks.begin(), breaks.end());
    EXPECT_EQ(server_.tensors.first_offsets, expected);
  }
}

TEST_F(UploadTest, AnOffsetGapIsResumedWithoutAnotherRoundTrip) {
  server_.tensors.stream_faults.push_back(
      {5000, Error(grpc::FAILED_PRECONDITION, "gap", "OFFSET_GAP", {{"committed_size", "5000"}})});
  SPARSEFW_ASSERT_OK(Upload());
  EXPECT_EQ(server_.tensors.get_uploads, 0);
  EXPECT_THAT(server_.tensors.first_offsets, ElementsAre(0, 5000));
}

TEST_F(UploadTest, ADamagedChunkIsSentAgain) {
  server_.tensors.stream_faults.push_back(
      {3000,
       Error(grpc::DATA_LOSS, "bad chunk", "CHECKSUM_MISMATCH", {{"committed_size", "3000"}})});
  SPARSEFW_ASSERT_OK(Upload());
  EXPECT_EQ(server_.tensors.get_uploads, 0);
  EXPECT_THAT(server_.tensors.first_offsets, ElementsAre(0, 3000));
}

TEST_F(UploadTest, ALostAnswerFindsTheFinishedTensor) {
  server_.tensors.stream_faults.push_back({14400, kBrokenStream});
  const auto tensor = Upload();
  SPARSEFW_ASSERT_OK(tensor);
  EXPECT_EQ(server_.tensors.Bytes(tensor->name()), bytes_);
  EXPECT_EQ(server_.tensors.streams, 1);
  ASSERT_EQ(server_.tensors.create_request_ids.size(), 2u);
  EXPECT_EQ(server_.tensors.create_request_ids[0], server_.tensors.create_request_ids[1]);
}

TEST_F(UploadTest, SurvivesARestartedServerThatForgotEverything) {
  bool restarted = false;
  const auto tensor = client_->UploadTensor(spec_, View(bytes_), [&](const TransferProgress& p) {
    if (p.done_bytes < 7000 || std::exchange(restarted, true)) return;
    server_.Stop();
    server_.tensors.Forget();
    server_.Start();
  });
  SPARSEFW_ASSERT_OK(tensor);
  EXPECT_TRUE(restarted);
  EXPECT_EQ(server_.tensors.Bytes(tensor->name()), bytes_);
}

TEST_F(UploadTest, UnaryCallsAreRetriedWithTheSameRequestId) {
  server_.tensors.create_faults = {kBrokenStream,
                                   Error(grpc::UNAVAILABLE, "draining", "DRAINING", {}, 1),
                                   Error(grpc::RESOURCE_EXHAUSTED, "full", "HOST_MEMORY", {}, 1)};
  server_.tensors.stream_faults.push_back({100, kBrokenStream});
  server_.tensors.get_upload_faults = {kBrokenStream};
  SPARSEFW_ASSERT_OK(Upload());
  ASSERT_EQ(server_.tensors.create_request_ids.size(), 4u);
  EXPECT_THAT(server_.tensors.create_request_ids, Each(server_.tensors.create_request_ids[0]));
  EXPECT_EQ(server_.tensors.create_request_ids[0].size(), 36u);
  EXPECT_EQ(server_.tensors.create_request_ids[0][14], '4');
  EXPECT_EQ(server_.tensors.get_uploads, 2);
}

TEST_F(UploadTest, DistinctUploadsHaveDistinctRequestIds) {
  SPARSEFW_ASSERT_OK(Upload());
  SPARSEFW_ASSERT_OK(Upload());
  EXPECT_NE(server_.tensors.create_request_ids[0], server_.tensors.create_request_ids[1]);
}

TEST_F(UploadTest, ANamedUploadCanBeComeBackTo) {
  const auto named = [this] { return client_->UploadTensor(spec_, View(bytes_), {}, {}, "mine"); };
  const grpc::Status refused(grpc::INVALID_ARGUMENT, "no");
  server_.tensors.stream_faults.push_back({5000, refused});
  EXPECT_THAT(named(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(server_.tensors.deleted.empty());
  const auto tensor = named();
  SPARSEFW_ASSERT_OK(tensor);
  EXPECT_THAT(server_.tensors.first_offsets, ElementsAre(0, 5000));
  const auto again = named();
  SPARSEFW_ASSERT_OK(again);
  EXPECT_EQ(again->name(), tensor->name());
  EXPECT_THAT(server_.tensors.create_request_ids, Each("mine"));
  // One without a name gives its room back.
  server_.tensors.stream_faults.push_back({5000, refused});
  EXPECT_THAT(Upload(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(server_.tensors.deleted.size(), 1u);
}

TEST_F(UploadTest, WhatCannotHealIsNotRetried) {
  server_.tensors.create_faults = {Error(grpc::RESOURCE_EXHAUSTED, "too big", "TENSOR_TOO_LARGE")};
  EXPECT_THAT(Upload(),
              StatusIs(absl::StatusCode::kResourceExhausted, "TENSOR_TOO_LARGE", "too big"));
  EXPECT_EQ(server_.tensors.create_request_ids.size(), 1u);

  server_.tensors.stream_faults.push_back(
      {2000, Error(grpc::INVALID_ARGUMENT, "NaN at [1, 2]", "NON_FINITE")});
  EXPECT_THAT(Upload(), StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "NaN at"));
  EXPECT_EQ(server_.tensors.streams, 1);

  // A checksum of the whole that never fits says nothing of where to resume.
  server_.tensors.stream_faults.push_back({14400, Error(grpc::INTERNAL, "bug", "BUG")});
  EXPECT_THAT(Upload(), StatusIs(absl::StatusCode::kInternal, "BUG", "bug"));
}

TEST_F(UploadTest, GivesUpAfterTheTimeWithoutProgress) {
  ClientOptions options = FastOptions();
  int retries = 0;
  options.on_retry = [&](const absl::Status& error, absl::Duration wait) {
    EXPECT_THAT(error, StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_LE(wait, options.retry.max_backoff);
    ++retries;
  };
  // More faults than there can be attempts: it does not end by itself.
  server_.tensors.stream_faults.assign(1'000'000, {0, kBrokenStream});
  EXPECT_TRUE(InTime(absl::Milliseconds(50), [&](absl::Duration patience) {
    options.retry.give_up_after = patience;
    server_.tensors.streams = retries = 0;
    Connect(options);
    EXPECT_THAT(Upload(), StatusIs(absl::StatusCode::kUnavailable, "", "Socket closed", "gave up"));
    EXPECT_EQ(retries, server_.tensors.streams - 1);
    return server_.tensors.streams > 3;
  }));
}

TEST_F(UploadTest, StopEndsAnUpload) {
  std::stop_source stop;
  const auto tensor = client_->UploadTensor(
      spec_, View(bytes_),
      [&](const TransferProgress& p) {
        if (p.done_bytes >= 3000) stop.request_stop();
      },
      CallOptions{stop.get_token()});
  EXPECT_THAT(tensor, StatusIs(absl::StatusCode::kCancelled, "STOPPED"));
  // The room that it had reserved is given back.
  EXPECT_EQ(server_.tensors.deleted.size(), 1u);
}

// Whether its answer comes or not: nobody else would know of the upload.
TEST_F(UploadTest, AStopWhileAnUploadIsMadeLeavesNothing) {
  for (const bool answered : {true, false}) {
    size_t before = server_.tensors.left();
    // The client gives each answer a second, which a starved machine may not meet.
    EXPECT_TRUE(Eventually([&] {
      std::stop_source stop;
      server_.tensors.on_create = [&](grpc::ServerContext* context) {
        stop.request_stop();
        if (!answered) testing::AwaitCancelled(context);
      };
      EXPECT_THAT(client_->UploadTensor(spec_, View(bytes_), {}, CallOptions{stop.get_token()}),
                  StatusIs(absl::StatusCode::kCancelled, "STOPPED"));
      return server_.tensors.left() == std::exchange(before, server_.tensors.left());
    })) << answered;
  }
}

TEST_F(UploadTest, AnUploadWhoseEndGoesUnheardLeavesNothing) {
  server_.tensors.stream_faults = {
      {std::ssize(bytes_), Error(grpc::INTERNAL, "the answer is lost", "LOST")}};
  EXPECT_THAT(client_->UploadTensor(spec_, View(bytes_)),
              StatusIs(absl::StatusCode::kInternal, "LOST"));
  EXPECT_EQ(server_.tensors.left(), 0u);
}

TEST_F(UploadTest, StopEndsAWaitForTheNextAttempt) {
  ClientOptions options = FastOptions();
  options.retry.initial_backoff = options.retry.max_backoff = absl::Hours(1);
  options.retry.give_up_after = absl::Hours(2);
  Connect(options);
  server_.tensors.stream_faults.push_back({500, kBrokenStream});
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_THAT(client_->UploadTensor(spec_, View(bytes_), {}, CallOptions{stop.get_token()}),
              StatusIs(absl::StatusCode::kCancelled, "STOPPED"));
}

TEST_F(UploadTest, SizesThatContradictAreRefusedBeforeTheyTravel) {
  EXPECT_THAT(client_->UploadTensor(spec_, View(bytes_).first(14399)),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "14400", "14399"));
  const v1::TensorSpec huge = WeightSpec(DType::kF32, int64_t{1} << 40, int64_t{1} << 40);
  EXPECT_THAT(client_->UploadTensor(huge, View(bytes_)),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "int64"));
  EXPECT_TRUE(server_.tensors.create_request_ids.empty());
}

class GramUploadTest : public testing::ClientTest {
 protected:
  // 211 tokens of 30 F16 values: 60 bytes each, 16 tokens to a chunk.
  const v1::GramSpec spec_ = ActivationSpec(DType::kF16, 30, DType::kF64);
  const std::string bytes_ = RandomBytes(211 * 60, 12);
};

TEST_F(GramUploadTest, SendsWholeTokens) {
  const auto gram = client_->UploadGramFromActivations(spec_, View(bytes_));
  SPARSEFW_ASSERT_OK(gram);
  EXPECT_EQ(server_.tensors.Bytes(gram->name()), bytes_);
  EXPECT_EQ(gram->spec().dtype(), v1::DATA_TYPE_F64);
  EXPECT_EQ(server_.tensors.chunk_sizes.front(), 960);
  EXPECT_EQ(server_.tensors.chunk_sizes.size(), 14u);
}

TEST_F(GramUploadTest, SendsBatchesOneAfterTheOther) {
  server_.tensors.stream_faults = {{7, kBrokenStream}, {40, kBrokenStream}};
  const std::array<std::span<const std::byte>, 3> batches = {View(bytes_).first(7 * 60),
                                                             View(bytes_).subspan(7 * 60, 33 * 60),
                                                             View(bytes_).subspan(40 * 60)};
  const auto gram = client_->UploadGramFromBatches(spec_, batches);
  SPARSEFW_ASSERT_OK(gram);
  EXPECT_EQ(server_.tensors.Bytes(gram->name()), bytes_);
  EXPECT_THAT(
      client_->UploadGramFromBatches(spec_, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "at least one batch"));
}

TEST_F(GramUploadTest, ResumesAtRandomTokensAndCountsNoneTwice) {
  std::mt19937 random(77);
  for (int round = 0; round < 25; ++round) {
    std::set<int64_t> breaks;
    for (int i = 0; i < 3; ++i) breaks.insert(static_cast<int64_t>(random() % 211));
    for (const int64_t at : breaks) {
      server_.tensors.stream_faults.push_back(
          {at, round % 2 == 0 ? kBrokenStream
                              : Error(grpc::FAILED_PRECONDITION, "gap", "OFFSET_GAP",
                                      {{"committed_tokens", std::to_string(at)}})});
    }
    server_.tensors.first_offsets.clear();
    const auto gram = client_->UploadGramFromActivations(spec_, View(bytes_));
    ASSERT_TRUE(gram.ok()) << gram.status();
    EXPECT_EQ(server_.tensors.Bytes(gram->name()), bytes_) << "round " << round;
    EXPECT_EQ(server_.tensors.first_offsets.size(), breaks.size() + 1);
  }
}

TEST_F(GramUploadTest, RefusesPartsOfTokensAndTokensBeyondAMessage) {
  EXPECT_THAT(client_->UploadGramFromActivations(spec_, View(bytes_).first(61)),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "60", "61"));
  EXPECT_THAT(client_->UploadGramFromActivations(spec_, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "whole tokens"));
  EXPECT_THAT(
      client_->UploadGramFromActivations(ActivationSpec(DType::kF32, 1 << 20), View(bytes_)),
      StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "d_in must be at most"));
}

TEST(ConnectTest, AnUnreachableServerIsNamed) {
  ClientOptions options = FastOptions();
  options.connect_timeout = absl::Milliseconds(50);
  std::string address;
  {
    const testing::FakeServer gone;
    address = gone.address();
  }
  EXPECT_THAT(Client::Connect(address, options),
              StatusIs(absl::StatusCode::kUnavailable, "UNREACHABLE", address));
}

TEST(ConnectTest, ChunksMustFitAMessage) {
  ClientOptions options;
  options.chunk_bytes = 2 << 20;
  EXPECT_THAT(Client::Connect("127.0.0.1:1", options),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "chunk_bytes"));
}

}  // namespace
}  // namespace sparsefw::client
