// Shares of running work between tenants: of the accounts alone, and of a scheduler
// whose jobs take the time that the test says.
#include "server/jobs/scheduling/fair_share.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/scheduling/scheduler.h"
#include "tests/server/jobs/fake_clock.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;

constexpr double kSecond = 1e10;  // operations at the speed that is first assumed

class FairShareTest : public ::testing::Test {
 protected:
  std::shared_ptr<ActiveJob> MakeJob(const std::string& tenant, double cost = kSecond,
                                     int priority = 0, int64_t working_bytes = 0) {
    auto job = std::make_shared<Job>();
    job->name = "jobs/" + std::to_string(++jobs_);
    job->owner.tenant = tenant;
    job->spec.priority = priority;
    auto inputs = std::make_shared<JobRunner::Inputs>();
    inputs->cost = cost;
    inputs->need.working_bytes = working_bytes;
    return std::make_shared<ActiveJob>(job, inputs, job->deadline);
  }
  void MakeScheduler(int workers, absl::Duration starvation_limit = absl::Seconds(60)) {
    SchedulerOptions options;
    options.workers = workers;
    options.working_memory_bytes = 100;
    options.starvation_limit = starvation_limit;
    options.limits_of = [this](std::string_view tenant) { return limits_[std::string(tenant)]; };
    scheduler_.emplace(options, clock_);
  }
  void Queue(const std::string& tenant, int count, double cost = kSecond) {
    for (int i = 0; i < count; ++i) {
      ASSERT_THAT(scheduler_->Enqueue(MakeJob(tenant, cost)), IsOk());
    }
  }
  // Runs jobs one after the other; how many of each tenant's.
  std::map<std::string, int> Run(int count, absl::Duration each = absl::Seconds(1)) {
    std::map<std::string, int> ran;
    for (int i = 0; i < count; ++i) {
      Scheduler::Lease lease = scheduler_->NextJob();
      ++ran[lease.job->tenant];
      clock_.Advance(each);
      scheduler_->Release(lease);
    }
    return ran;
  }

  int jobs_ = 0;
  FakeClock clock_;
  std::map<std::string, TenantLimits> limits_;
  std::optional<Scheduler> scheduler_;
};

TEST_F(FairShareTest, WorkFollowsTheWeights) {
  limits_["alice"].weight = 2;
  MakeScheduler(1);
  Queue("alice", 1000);
  Queue("bob", 1000);
  EXPECT_THAT(Run(300), ElementsAre(std::pair("alice", 200), std::pair("bob", 100)));
}

TEST_F(FairShareTest, SecondsCountAndNotJobs) {
  MakeScheduler(1);
  Queue("alice", 400, kSecond);
  Queue("bob", 400, 4 * kSecond);
  std::map<std::string, double> seconds;
  for (int i = 0; i < 200; ++i) {
    Scheduler::Lease lease = scheduler_->NextJob();
    const double took = lease.job->tenant == "alice" ? 1 : 4;
    seconds[lease.job->tenant] += took;
    clock_.Advance(absl::Seconds(took));
    scheduler_->Release(lease);
  }
  EXPECT_NEAR(seconds["alice"], seconds["bob"], 4);
}

// Costs are guesses: shares are of what runs have really taken.
TEST_F(FairShareTest, WrongEstimatesAreSetRight) {
  MakeScheduler(1);
  Queue("alice", 400, kSecond / 1000);
  Queue("bob", 400, 50 * kSecond);
  const std::map<std::string, int> ran = Run(200);
  EXPECT_NEAR(ran.at("alice"), ran.at("bob"), 2);
}

TEST_F(FairShareTest, ManyQueuedJobsHoldNobodyBack) {
  MakeScheduler(1);
  Queue("alice", 1000);
  Run(20);
  Queue("bob", 1);
  EXPECT_EQ(Run(2).count("bob"), 1u);
}

TEST_F(FairShareTest, NobodySavesUpWhileThereIsNothingToRun) {
  MakeScheduler(1);
  Queue("alice", 1000);
  Run(500);
  Queue("bob", 1000);
  const std::map<std::string, int> ran = Run(100);
  EXPECT_EQ(ran.at("alice"), 50);
}

// A client that waits for one job before it sends the next has no advantage.
TEST_F(FairShareTest, ComingAndGoingPaysTheSame) {
  MakeScheduler(1);
  Queue("alice", 1000);
  std::map<std::string, int> ran;
  Queue("bob", 1);
  for (int i = 0; i < 100; ++i) {
    Scheduler::Lease lease = scheduler_->NextJob();
    const std::string tenant = lease.job->tenant;
    ++ran[tenant];
    clock_.Advance(absl::Seconds(1));
    scheduler_->Release(lease);
    if (tenant == "bob") Queue("bob", 1);
  }
  EXPECT_NEAR(ran["alice"], ran["bob"], 2);
}

// What runs long is accounted for while it runs.
TEST_F(FairShareTest, ALongRunCountsBeforeItEnds) {
  MakeScheduler(2);
  Queue("alice", 100);
  Scheduler::Lease longest = scheduler_->NextJob();
  ASSERT_EQ(longest.job->tenant, "alice");
  Queue("bob", 100);
  clock_.Advance(absl::Seconds(50));
  EXPECT_EQ(Run(40).count("alice"), 0u) << "she has had 50 s";
  scheduler_->Release(longest);
}

TEST_F(FairShareTest, WithinATenantPriorityThenArrival) {
  MakeScheduler(1);
  const auto low = MakeJob("alice", kSecond, -1);
  const auto first = MakeJob("alice");
  const auto second = MakeJob("alice");
  const auto urgent = MakeJob("bob", kSecond, 100);
  for (const auto& job : {low, first, second, urgent}) {
    ASSERT_THAT(scheduler_->Enqueue(job), IsOk());
  }
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) {
    Scheduler::Lease lease = scheduler_->NextJob();
    order.push_back(lease.job->name);
    clock_.Advance(absl::Seconds(1));
    scheduler_->Release(lease);
  }
  EXPECT_THAT(order, ElementsAre(first->name, urgent->name, second->name, low->name))
      << "a priority of bob's is nothing to alice";
}

TEST_F(FairShareTest, NoMoreRunAtOnceThanATenantMay) {
  limits_["alice"].max_running_jobs = 1;
  MakeScheduler(3);
  Queue("alice", 5);
  Queue("bob", 1);
  Scheduler::Lease one = scheduler_->NextJob();
  Scheduler::Lease two = scheduler_->NextJob();
  EXPECT_EQ(one.job->tenant, "alice");
  EXPECT_EQ(two.job->tenant, "bob");
  EXPECT_EQ(scheduler_->queued_of("alice"), 4) << "held, not refused";
  // Another limit counts at once.
  limits_["alice"].max_running_jobs = 2;
  scheduler_->OnLimitsChanged();
  Scheduler::Lease three = scheduler_->NextJob();
  EXPECT_EQ(three.job->tenant, "alice");
  for (Scheduler::Lease* lease : {&one, &two, &three}) scheduler_->Release(*lease);
}

TEST_F(FairShareTest, WhatALimitHoldsBackIsNotSavedUp) {
  limits_["alice"].max_running_jobs = 0;
  MakeScheduler(1);
  Queue("alice", 100);
  Queue("bob", 1000);
  Run(500);
  limits_["alice"].max_running_jobs.reset();
  EXPECT_NEAR(Run(100).at("alice"), 50, 1);
}

TEST_F(FairShareTest, AJobThatDoesNotFitHoldsOthersBackForTheStarvationLimitAlone) {
  MakeScheduler(4, absl::Seconds(60));
  ASSERT_THAT(scheduler_->Enqueue(MakeJob("alice", kSecond, 0, 60)), IsOk());
  Scheduler::Lease running = scheduler_->NextJob();
  const auto big = MakeJob("alice", kSecond, 0, 90);
  const auto small = MakeJob("bob", kSecond, 0, 10);
  ASSERT_THAT(scheduler_->Enqueue(big), IsOk());
  // Bob's account is that of the last start, alice's one second above.
  ASSERT_THAT(scheduler_->Enqueue(MakeJob("bob", kSecond, 0, 90)), IsOk());
  ASSERT_THAT(scheduler_->Enqueue(small), IsOk());
  const absl::Time held = clock_.Now();
  Scheduler::Lease next;
  std::thread waiter([&] { next = scheduler_->NextJob(); });
  clock_.AwaitWaiter(held + absl::Seconds(60));
  clock_.Advance(absl::Seconds(59));
  EXPECT_EQ(scheduler_->queued(), 3);
  clock_.Advance(absl::Seconds(1));
  waiter.join();
  EXPECT_EQ(next.job->name, small->name);
  scheduler_->Release(next);
  scheduler_->Release(running);
}

// Or workers would look at the clock again and again.
TEST_F(FairShareTest, NobodyWaitsForAClaimOfJobsThatAreGone) {
  MakeScheduler(4, absl::Seconds(60));
  ASSERT_THAT(scheduler_->Enqueue(MakeJob("alice", kSecond, 0, 60)), IsOk());
  Scheduler::Lease running = scheduler_->NextJob();
  const auto big = MakeJob("alice", kSecond, 0, 90);
  const auto small = MakeJob("alice", kSecond, 0, 10);
  ASSERT_THAT(scheduler_->Enqueue(big), IsOk());
  ASSERT_THAT(scheduler_->Enqueue(small), IsOk());
  const absl::Time held = clock_.Now();
  std::thread waiter([&] { EXPECT_EQ(scheduler_->NextJob().job, nullptr); });
  clock_.AwaitWaiter(held + absl::Seconds(60));
  scheduler_->Remove(*small);
  scheduler_->Remove(*big);
  clock_.Advance(absl::Seconds(61));
  clock_.AwaitWaiter(absl::InfiniteFuture());
  scheduler_->Stop();
  waiter.join();
  scheduler_->Release(running);
}

TEST_F(FairShareTest, TenantsAreCountedByWhatTheirJobsDo) {
  MakeScheduler(2);
  const auto counts = [this] {
    const TenantCounts now = scheduler_->tenants();
    return std::vector<int64_t>{now.waiting, now.running};
  };
  EXPECT_THAT(counts(), ElementsAre(0, 0));
  Queue("alice", 3);
  Queue("bob", 1);
  EXPECT_THAT(counts(), ElementsAre(2, 0));
  Scheduler::Lease first = scheduler_->NextJob();
  Scheduler::Lease second = scheduler_->NextJob();
  EXPECT_THAT(counts(), ElementsAre(1, 2)) << "bob's only job runs";
  scheduler_->Release(first);
  scheduler_->Release(second);
  EXPECT_THAT(counts(), ElementsAre(1, 0));
  Run(2);
  EXPECT_THAT(counts(), ElementsAre(0, 0));
}

}  // namespace
}  // namespace sparsefw::server
