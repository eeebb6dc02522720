#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sparsefw/reason.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

using SubmitTest = JobManagerTest;

TEST_F(SubmitTest, AcceptedJobIsQueuedWithEverythingFilledIn) {
  SubmitRunning();
  JobSpec spec;
  spec.weight = "tensors/w";
  spec.deadline = absl::Seconds(30);
  spec.labels = {{"layer", "q"}};
  spec.traceparent = "trace";
  const Job job = Submit(spec, "request");
  EXPECT_THAT(job.name, StartsWith("jobs/"));
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.spec.weight, "tensors/w");
  EXPECT_EQ(job.spec.labels.at("layer"), "q");
  EXPECT_EQ(job.spec.traceparent, "trace");
  EXPECT_EQ(job.request_id, "request");
  EXPECT_EQ(job.owner, (Owner{"default", "somebody"}));
  EXPECT_EQ(job.rows, 3);
  EXPECT_EQ(job.cols, 5);
  EXPECT_EQ(job.revision, 1);
  EXPECT_EQ(job.state_revision, 1);
  EXPECT_EQ(job.create_time, clock_.Now());
  EXPECT_EQ(job.deadline, clock_.Now() + absl::Seconds(30));
  EXPECT_EQ(job.expire_time, absl::InfiniteFuture());
  EXPECT_EQ(manager_->queued(), 1);
  EXPECT_EQ(manager_->running(), 1);
}

TEST_F(SubmitTest, HigherPriorityRunsFirstThenOrderOfArrival) {
  const Job blocker = SubmitRunning();
  std::vector<std::string> names;
  for (const int priority : {0, 5, 0, -100, 5, 100}) {
    JobSpec spec;
    spec.priority = priority;
    names.push_back(Submit(spec).name);
  }
  const std::vector<std::string> expected = {names[5], names[1], names[4],
                                             names[0], names[2], names[3]};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(Get(expected[i]).queue_position, static_cast<int>(i));
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobStore::Page page, manager_->List({}, 100, ""));
  std::vector<int> listed;  // newest first
  for (const Job& job : page.jobs) listed.push_back(job.queue_position);
  EXPECT_THAT(listed, ElementsAre(0, 2, 5, 4, 1, 3, 0));

  std::string current = blocker.name;
  for (size_t i = 0; i < expected.size(); ++i) {
    runner_.Finish(current, ResultWith(StopCause::kIterations));
    current = runner_.WaitForRun(i + 1).name;
    EXPECT_EQ(current, expected[i]) << "run " << i;
  }
}

TEST_F(SubmitTest, EveryWorkerRunsOneJobAtATime) {
  JobManagerOptions options;
  options.workers = 3;
  Restart(options);
  for (int i = 0; i < 4; ++i) Submit();
  const std::set<std::string> names = {runner_.WaitForRun(0).name, runner_.WaitForRun(1).name,
                                       runner_.WaitForRun(2).name};
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(manager_->running(), 3);
  EXPECT_EQ(manager_->queued(), 1);
  runner_.Finish(runner_.WaitForRun(1).name, ResultWith(StopCause::kIterations));
  runner_.WaitForRun(3);
  EXPECT_EQ(manager_->queued(), 0);
}

TEST_F(SubmitTest, RefusesWhatIsOutOfRange) {
  const auto refused = [this](const JobSpec& spec, const std::string& rule,
                              const std::string& value) {
    for (const bool validate_only : {false, true}) {
      EXPECT_THAT(manager_->Submit(spec, "", {""}, {}, validate_only),
                  StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", rule, value));
    }
  };
  JobSpec spec;
  spec.priority = 101;
  refused(spec, "[-100, 100]", "priority=101");
  spec.priority = -101;
  refused(spec, "[-100, 100]", "priority=-101");
  spec = {};
  spec.deadline = absl::ZeroDuration();
  refused(spec, "deadline must be above 0", "deadline=0");
  spec.deadline = -absl::Seconds(1);
  refused(spec, "deadline must be above 0", "deadline=-1s");
  spec = {};
  spec.result_ttl = absl::ZeroDuration();
  refused(spec, "result_ttl must be above 0", "result_ttl=0");
  EXPECT_EQ(runner_.prepared(), 0);
}

TEST_F(SubmitTest, ResultTtlHasAnUpperEnd) {
  JobManagerOptions options;
  options.max_result_ttl = absl::Hours(48);
  Restart(options);
  JobSpec spec;
  spec.result_ttl = absl::Hours(48) + absl::Nanoseconds(1);
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID",
                                "at most --max-result-ttl", "48h");
  EXPECT_THAT(manager_->Submit(spec, "", {""}, {}, false), refused);
  EXPECT_THAT(manager_->Submit(spec, "", {""}, {}, true), refused);
  EXPECT_THAT(manager_->Check(spec, {}, "default"), refused);
  spec.result_ttl = absl::Hours(48);
  EXPECT_THAT(manager_->Submit(spec, "", {""}, {}, false), IsOk());
}

TEST_F(SubmitTest, ValidateOnlyPreparesAndQueuesNothing) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const Job job, manager_->Submit({}, "request", {"body"}, Owner{.name = "somebody"}, true));
  EXPECT_EQ(job.name, "");
  EXPECT_EQ(job.rows, 3);
  EXPECT_EQ(runner_.prepared(), 1);
  EXPECT_EQ(runner_.live_inputs(), 0);
  EXPECT_EQ(manager_->queued() + manager_->running(), 0);
  EXPECT_THAT(*store_.CountByState(), IsEmpty());
  EXPECT_FALSE(*store_.FindRequest(kDefaultTenant, "request"));
  EXPECT_THAT(listener_.calls(), IsEmpty());
}

TEST_F(SubmitTest, CheckPreparesAndQueuesNothing) {
  InputSpecs inputs;
  inputs.weight = MatrixSpec{3, 5, DType::kF16};
  EXPECT_THAT(manager_->Check({}, inputs, "default"), IsOk());
  ASSERT_TRUE(runner_.checked_inputs.weight.has_value());
  EXPECT_EQ(runner_.checked_inputs.weight->cols, 5);
  EXPECT_EQ(runner_.prepared(), 0);
  EXPECT_THAT(*store_.CountByState(), IsEmpty());
  EXPECT_THAT(listener_.calls(), IsEmpty());
}

TEST_F(SubmitTest, CheckRefusesWhatSubmitRefuses) {
  JobSpec spec;
  spec.priority = 101;
  EXPECT_THAT(manager_->Check(spec, {}, "default"),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "priority=101"));
  runner_.device_need_of = [](const JobSpec&) { return DeviceNeed{.devices = {"cuda:7"}}; };
  EXPECT_THAT(manager_->Check({}, {}, "default"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE", "cuda:7"));
  runner_.on_prepare = [](const JobSpec&) -> absl::Status { throw 42; };
  EXPECT_THAT(manager_->Check({}, {}, "default"), StatusIs(absl::StatusCode::kInternal));
}

class RefusingRunnerTest : public JobManagerTest {
 protected:
  RefusingRunnerTest() {
    runner_.on_prepare = [this](const JobSpec&) { return prepare_(); };
  }
  std::function<absl::Status()> prepare_ = [] { return absl::OkStatus(); };
};

TEST_F(RefusingRunnerTest, WhatPrepareSaysIsTheAnswerAndTheIdStaysFree) {
  const absl::Status no_gram =
      WithReason(absl::NotFoundError("there is no tensor \"tensors/g\""), "TENSOR_NOT_FOUND");
  prepare_ = [&] { return no_gram; };
  for (const bool validate_only : {false, true}) {
    EXPECT_THAT(manager_->Submit({}, "request", {"body"}, {}, validate_only),
                StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND", "tensors/g"));
  }
  EXPECT_THAT(*store_.CountByState(), IsEmpty());
  prepare_ = [] { return absl::OkStatus(); };
  EXPECT_THAT(manager_->Submit({}, "request", {"another body"}, {}, false), IsOk());
}

TEST_F(RefusingRunnerTest, ExceptionsOfPrepareBecomeErrors) {
  prepare_ = []() -> absl::Status { throw std::runtime_error("no room"); };
  EXPECT_THAT(manager_->Submit({}, "", {""}, {}, false),
              StatusIs(absl::StatusCode::kInternal, "", "no room"));
  prepare_ = []() -> absl::Status { throw 42; };
  EXPECT_THAT(manager_->Submit({}, "", {""}, {}, true),
              StatusIs(absl::StatusCode::kInternal, "", "unknown exception"));
}

TEST_F(SubmitTest, TheSameRequestGivesTheSameJobAsItIsNow) {
  const Job first = Submit({}, "request");
  runner_.WaitForRun(0);
  RunTo(first.name, ResultWith(StopCause::kIterations));
  const Job again = Submit({}, "request");
  EXPECT_EQ(again.name, first.name);
  EXPECT_EQ(again.state, JobState::kSucceeded);
  EXPECT_EQ(runner_.prepared(), 1);
  EXPECT_NE(Submit({}, "another request").name, first.name);
  EXPECT_NE(Submit().name, Submit().name) << "no id, no identity";
}

TEST_F(SubmitTest, TheSameRequestIdWithAnotherBodyIsRefused) {
  const Job first = Submit({}, "request");
  EXPECT_THAT(
      manager_->Submit({}, "request", {"another body"}, {}, false),
      StatusIs(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED", "\"request\"", first.name));
}

TEST_F(SubmitTest, ARepeatedRequestIsAnsweredWhateverTheQueueSays) {
  JobManagerOptions options;
  options.max_queued_jobs = 1;
  Restart(options);
  SubmitRunning();
  const Job job = Submit({}, "request");
  EXPECT_THAT(manager_->Submit({}, "new", {"body"}, {}, false),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Submit({}, "request").name, job.name);
  manager_->StopAccepting();
  EXPECT_EQ(Submit({}, "request").name, job.name);
}

TEST_F(SubmitTest, DeletingTheJobFreesItsRequestId) {
  const Job first = Submit({}, "request");
  runner_.WaitForRun(0);
  RunTo(first.name, ResultWith(StopCause::kIterations));
  ASSERT_THAT(manager_->Delete(first.name), IsOk());
  EXPECT_NE(Submit({}, "request").name, first.name);
}

// Both are inside Submit before either can finish: the first holds Prepare up
// until every other has had the time to follow it there, were it let.
TEST_F(RefusingRunnerTest, ConcurrentSubmissionsOfOneRequestMakeOneJob) {
  constexpr int kThreads = 8;
  std::atomic<int> arrived = 0;
  prepare_ = [&] {
    while (arrived.load() < kThreads) std::this_thread::yield();
    return absl::OkStatus();
  };
  std::mutex mutex;
  std::set<std::string> names;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      arrived.fetch_add(1);
      const Job job = Submit({}, "request");
      std::lock_guard<std::mutex> lock(mutex);
      names.insert(job.name);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names.size(), 1u);
  EXPECT_EQ(runner_.prepared(), 1);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const JobStore::Page page, manager_->List({}, 10, ""));
  EXPECT_EQ(page.jobs.size(), 1u);
}

TEST_F(RefusingRunnerTest, AWaitingSubmissionTakesOverWhenTheFirstIsRefused) {
  constexpr int kThreads = 4;
  std::atomic<int> arrived = 0;
  std::atomic<int> prepared = 0;
  prepare_ = [&]() -> absl::Status {
    while (arrived.load() < kThreads) std::this_thread::yield();
    if (prepared.fetch_add(1) == 0) return absl::ResourceExhaustedError("not just now");
    return absl::OkStatus();
  };
  std::atomic<int> accepted = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      arrived.fetch_add(1);
      const auto job = manager_->Submit({}, "request", {"body"}, {}, false);
      (job.ok() ? accepted : refused).fetch_add(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused.load(), 1);
  EXPECT_EQ(accepted.load(), kThreads - 1);
  EXPECT_EQ(prepared.load(), 2);
}

TEST_F(SubmitTest, AFullQueueSaysWhenToTryAgain) {
  JobManagerOptions options;
  options.max_queued_jobs = 2;
  Restart(options);
  const Job blocker = SubmitRunning();
  Submit();
  Submit();
  const auto refused = manager_->Submit({}, "", {""}, {}, false);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "at most 2"));
  EXPECT_EQ(ReasonMetadataOf(refused.status()).at("retry_delay_ms"), "1000");
  EXPECT_EQ(runner_.prepared(), 3) << "refused before the costly validation";
  EXPECT_THAT(manager_->Submit({}, "", {""}, {}, true), IsOk());

  runner_.Finish(blocker.name, ResultWith(StopCause::kIterations));
  runner_.WaitForRun(1);
  Submit();
}

TEST_F(RefusingRunnerTest, SubmissionsBeingValidatedCountAgainstTheQueue) {
  JobManagerOptions options;
  options.max_queued_jobs = 1;
  Restart(options);
  SubmitRunning();
  std::atomic<bool> inside = false;
  std::atomic<bool> go_on = false;
  prepare_ = [&] {
    inside = true;
    while (!go_on) std::this_thread::yield();
    return absl::OkStatus();
  };
  std::thread first([&] { Submit(); });
  while (!inside) std::this_thread::yield();
  EXPECT_THAT(manager_->Submit({}, "", {""}, {}, false),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUEUE_FULL"));
  go_on = true;
  first.join();
  EXPECT_EQ(manager_->queued(), 1);
}

TEST_F(SubmitTest, StopAcceptingRefusesNewJobsOnly) {
  const Job job = SubmitRunning();
  manager_->StopAccepting();
  const auto refused = manager_->Submit({}, "", {""}, {}, false);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, "DRAINING", "draining"));
  EXPECT_EQ(ReasonMetadataOf(refused.status()).at(kRetryDelayKey), kRetryDelayMs);
  EXPECT_EQ(RunTo(job.name, ResultWith(StopCause::kIterations)).state, JobState::kSucceeded);
}

// The number that the generator's state came from: the inverse of mt19937_64's tempering.
uint64_t Untempered(uint64_t number) {
  number ^= number >> 43;
  number ^= (number << 37) & 0xFFF7EEE000000000U;
  uint64_t left = number;
  for (int i = 0; i < 4; ++i) left = number ^ ((left << 17) & 0x71D67FFFEDA60000U);
  uint64_t right = left;
  for (int i = 0; i < 3; ++i) right = left ^ ((right >> 29) & 0x5555555555555555U);
  return right;
}

TEST_F(SubmitTest, NamesDoNotFollowFromEarlierOnes) {
  constexpr int kState = std::mt19937_64::state_size;
  std::set<std::string> names;
  std::stringstream state;
  const auto next = [&]() -> uint64_t {
    const std::string name = Submit().name;
    EXPECT_TRUE(names.insert(name).second);
    return std::stoull(name.substr(std::string("jobs/").size()), nullptr, 16);
  };
  for (int i = 0; i < kState; ++i) state << Untempered(next()) << ' ';
  state << kState;
  std::mt19937_64 guess;
  state >> guess;
  EXPECT_NE(guess(), next());
  runner_.obey_stop = true;
}

// Its time would tell that it is kept.
TEST_F(SubmitTest, WhoseAJobIsIsAskedWithoutReadingIt) {
  const Job job = Submit({}, "", "one");
  runner_.WaitForRun(0);
  for (int state = 0; state < 2; ++state) {
    EXPECT_TRUE(*manager_->Has(job.name, "one"));
    EXPECT_FALSE(*manager_->Has(job.name, "two"));
    EXPECT_FALSE(*manager_->Has("jobs/none", "two"));
    EXPECT_EQ(store_.gets, 0);
    if (!IsTerminal(Get(job.name).state)) RunTo(job.name, ResultWith(StopCause::kIterations));
  }
}

TEST_F(SubmitTest, AJobThatCannotBeStoredIsNotAccepted) {
  store_.insert_fault = [](const Job&) { return absl::UnavailableError("disk gone"); };
  EXPECT_THAT(manager_->Submit({}, "request", {"body"}, {}, false),
              StatusIs(absl::StatusCode::kUnavailable, "", "disk gone"));
  EXPECT_EQ(manager_->queued() + manager_->running(), 0);
  EXPECT_EQ(runner_.live_inputs(), 0);
  EXPECT_THAT(listener_.calls(), IsEmpty());
  store_.insert_fault = [](const Job&) { return absl::OkStatus(); };
  Submit({}, "request");
}

}  // namespace
}  // namespace sparsefw::server
