// One upload for all, whoever comes first.
#include "server/jobs/scheduling/shared_gram.h"

#include <future>
#include <thread>
#include <vector>

#include "tests/server/jobs/fake_gram.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

class SharedGramTest : public ::testing::Test {
 protected:
  SharedGram::Upload Upload() {
    return [this] { return memory_.Upload("cuda:0", 4); };
  }

  FakeMemory memory_;
  const std::shared_ptr<GramCacheStats> stats_ = std::make_shared<GramCacheStats>();
  std::unique_ptr<SharedGram> shared_ = std::make_unique<SharedGram>(stats_);
  StopSignal stop_;
};

TEST_F(SharedGramTest, TheFirstUploadsAndTheOthersShare) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto first, shared_->Get(Upload(), stop_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto second, shared_->Get(Upload(), stop_));
  EXPECT_EQ(first, second);
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
  EXPECT_EQ(stats_->uploads, 1);
  EXPECT_EQ(stats_->reuses, 1);
}

TEST_F(SharedGramTest, ItsMemoryIsFreeOnceNobodyHasIt) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto gram, shared_->Get(Upload(), stop_));
  shared_.reset();
  EXPECT_EQ(memory_.taken("cuda:0"), 4);
  gram.reset();
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
}

TEST_F(SharedGramTest, AfterAFailureTheNextOneTries) {
  const auto fail = [] { return absl::ResourceExhaustedError("no memory"); };
  EXPECT_THAT(shared_->Get(fail, stop_), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THROW(static_cast<void>(shared_->Get(
                   []() -> absl::StatusOr<SharedGram::Gram> { throw std::bad_alloc(); }, stop_)),
               std::bad_alloc);
  EXPECT_EQ(stats_->uploads, 0);
  EXPECT_THAT(shared_->Get(Upload(), stop_), IsOk());
  EXPECT_EQ(stats_->uploads, 1);
}

// The upload does not end before all others have asked or been told to stop.
TEST_F(SharedGramTest, OthersWaitForTheUploadOrUntilTheyAreStopped) {
  std::promise<void> begun;
  std::promise<void> may_end;
  std::thread first([&] {
    EXPECT_THAT(shared_->Get(
                    [&] {
                      begun.set_value();
                      may_end.get_future().wait();
                      return memory_.Upload("cuda:0", 4);
                    },
                    stop_),
                IsOk());
  });
  begun.get_future().wait();
  StopSignal stopped;
  stopped.Request();
  EXPECT_THAT(shared_->Get(Upload(), stopped), StatusIs(absl::StatusCode::kCancelled));
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] { EXPECT_THAT(shared_->Get(Upload(), stop_), IsOk()); });
  }
  may_end.set_value();
  first.join();
  for (std::thread& other : others) other.join();
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
  EXPECT_EQ(stats_->reuses, 3);
}

TEST_F(SharedGramTest, WhoWaitedForAnUploadThatFailsTriesItself) {
  std::promise<void> begun;
  std::promise<void> may_end;
  std::thread first([&] {
    EXPECT_THAT(shared_->Get(
                    [&]() -> absl::StatusOr<SharedGram::Gram> {
                      begun.set_value();
                      may_end.get_future().wait();
                      return absl::CancelledError("stopped");
                    },
                    stop_),
                StatusIs(absl::StatusCode::kCancelled));
  });
  begun.get_future().wait();
  std::thread second([&] { EXPECT_THAT(shared_->Get(Upload(), stop_), IsOk()); });
  may_end.set_value();
  first.join();
  second.join();
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
}

}  // namespace
}  // namespace sparsefw::server
