#include "server/jobs/scheduling/job_queue.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::shared_ptr<ActiveJob> MakeJob(const std::string& name, int priority, absl::Time deadline,
                                   const std::string& tenant = "default",
                                   int64_t working_bytes = 0) {
  auto job = std::make_shared<Job>();
  job->name = name;
  job->owner.tenant = tenant;
  job->spec.priority = priority;
  job->deadline = deadline;
  auto inputs = std::make_shared<JobRunner::Inputs>();
  inputs->need.working_bytes = working_bytes;
  return std::make_shared<ActiveJob>(job, inputs, job->deadline);
}

std::vector<std::string> Names(const std::vector<std::shared_ptr<ActiveJob>>& jobs) {
  std::vector<std::string> names;
  for (const auto& job : jobs) names.push_back(job->name);
  return names;
}

constexpr absl::Time kNever = absl::InfiniteFuture();
absl::Time At(int seconds) { return absl::FromUnixSeconds(seconds); }

class JobQueueTest : public ::testing::Test {
 protected:
  void Push(const std::string& name, int priority, absl::Time deadline = kNever) {
    queue_.Push(MakeJob(name, priority, deadline));
  }
  std::string TakeFirst() {
    return queue_.TakeFirst("default", [](const ActiveJob&) { return JobQueue::Look::kTake; })
        ->name;
  }
  JobQueue queue_;
};

TEST_F(JobQueueTest, HigherPriorityFirstThenOrderOfArrival) {
  Push("a", 0);
  Push("b", 5);
  Push("c", -100);
  Push("d", 5);
  Push("e", 0);
  const std::vector<std::string> all = {"e", "unknown", "a", "b", "c", "d"};
  EXPECT_THAT(queue_.Positions(all),
              ElementsAre(Pair("a", 2), Pair("b", 0), Pair("c", 4), Pair("d", 1), Pair("e", 3)));
  EXPECT_EQ(queue_.Position("e"), 3);
  EXPECT_EQ(queue_.Position("unknown"), 0);
  std::vector<std::string> order;
  while (!queue_.empty()) order.push_back(TakeFirst());
  EXPECT_THAT(order, ElementsAre("b", "d", "a", "e", "c"));
}

TEST_F(JobQueueTest, RemovedAndTakenJobsLeaveNoDeadlineBehind) {
  Push("a", 0, At(10));
  Push("b", 0, At(5));
  Push("c", 1, At(7));
  EXPECT_EQ(queue_.next_deadline(), At(5));
  queue_.Remove("b");
  queue_.Remove("b");
  EXPECT_EQ(queue_.next_deadline(), At(7));
  EXPECT_EQ(TakeFirst(), "c");
  EXPECT_EQ(queue_.next_deadline(), At(10));
  EXPECT_EQ(queue_.size(), 1u);
  EXPECT_EQ(TakeFirst(), "a");
  EXPECT_EQ(queue_.next_deadline(), kNever);
}

TEST_F(JobQueueTest, TakesTheExpiredInOrderOfTheirDeadlines) {
  Push("late", 0, At(11));
  Push("second", 100, At(10));
  Push("first", -100, At(9));
  Push("never", 0);
  EXPECT_THAT(queue_.TakeExpired(At(8)), IsEmpty());
  EXPECT_THAT(Names(queue_.TakeExpired(At(10))), ElementsAre("first", "second"));
  EXPECT_THAT(Names(queue_.All()), ElementsAre("late", "never"));
}

// What finds no place for one finds none for the others that need the same.
TEST_F(JobQueueTest, LooksAtTheFirstOfEveryNeedAlone) {
  for (int i = 0; i < 1000; ++i) {
    queue_.Push(MakeJob("big" + std::to_string(i), i == 500 ? 1 : 0, kNever, "default", 10));
  }
  queue_.Push(MakeJob("small", 0, kNever, "default", 1));
  std::vector<std::string> seen;
  const auto look = [&](const ActiveJob& job) {
    seen.push_back(job.name);
    return job.need.working_bytes > 5 ? JobQueue::Look::kPass : JobQueue::Look::kTake;
  };
  EXPECT_EQ(queue_.TakeFirst("default", look)->name, "small");
  EXPECT_THAT(seen, ElementsAre("big500", "small"));
  queue_.Remove("big500");
  seen.clear();
  EXPECT_EQ(queue_.TakeFirst("default", look), nullptr);
  EXPECT_THAT(seen, ElementsAre("big0"));
  EXPECT_EQ(queue_.size(), 999u);
}

TEST_F(JobQueueTest, TenantsHaveQueuesAndPositionsOfTheirOwn) {
  queue_.Push(MakeJob("a1", 0, kNever, "alice"));
  queue_.Push(MakeJob("b1", 9, kNever, "bob"));
  queue_.Push(MakeJob("a2", 0, kNever, "alice"));
  EXPECT_EQ(queue_.Position("a2"), 1);
  EXPECT_EQ(queue_.Position("b1"), 0);
  const std::vector<std::string> some = {"a2", "b1"};
  EXPECT_THAT(queue_.Positions(some), ElementsAre(Pair("a2", 1), Pair("b1", 0)));
  EXPECT_EQ(queue_.size_of("alice"), 2);
  EXPECT_EQ(queue_.size_of("carol"), 0);
  const auto any = [](const ActiveJob&) { return JobQueue::Look::kTake; };
  EXPECT_EQ(queue_.TakeFirst("alice", any)->name, "a1");
  EXPECT_EQ(queue_.TakeFirst("carol", any), nullptr);
  EXPECT_THAT(Names(queue_.All()), ElementsAre("a2", "b1"));
}

}  // namespace
}  // namespace sparsefw::server
