#include "server/jobs/event_queue.h"

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

JobEvent Event(JobEvent::Kind kind, int64_t revision, JobState state) {
  auto job = std::make_shared<Job>();
  job->state = state;
  if (kind == JobEvent::Kind::kProgress) return {kind, std::move(job), JobProgress{{}, revision}};
  job->revision = revision;
  return {kind, std::move(job)};
}

constexpr auto kSnapshot = JobEvent::Kind::kSnapshot;
constexpr auto kStateChange = JobEvent::Kind::kStateChange;
constexpr auto kProgress = JobEvent::Kind::kProgress;

TEST(EventQueueTest, KeepsEveryStateChangeAndTheLatestProgress) {
  int woken = 0;
  EventQueue queue({Event(kSnapshot, 1, JobState::kQueued)}, [&woken] { ++woken; });
  queue.Push(Event(kStateChange, 2, JobState::kRunning));
  for (int64_t i = 3; i < 1000; ++i) queue.Push(Event(kProgress, i, JobState::kRunning));
  EXPECT_EQ(woken, 998) << "not for the first event";
  EXPECT_EQ(queue.Next()->kind, kSnapshot);
  EXPECT_EQ(queue.Next()->kind, kStateChange);
  const std::optional<JobEvent> progress = queue.Next();
  EXPECT_EQ(progress->kind, kProgress);
  EXPECT_EQ(progress->revision(), 999);
  EXPECT_FALSE(queue.Next().has_value());
  EXPECT_FALSE(queue.ended());
}

TEST(EventQueueTest, EndsOnceTheEndHasBeenPulled) {
  EventQueue queue({Event(kSnapshot, 2, JobState::kRunning)}, [] {});
  queue.Push(Event(kProgress, 3, JobState::kRunning));
  queue.Push(Event(kStateChange, 4, JobState::kSucceeded));
  EXPECT_FALSE(queue.ended());
  EXPECT_EQ(queue.latest()->revision, 4);
  EXPECT_EQ(queue.Next()->kind, kSnapshot);
  EXPECT_EQ(queue.Next()->job->state, JobState::kSucceeded) << "older progress is dropped";
  EXPECT_TRUE(queue.ended());
}

// A watcher may come between a change and its event.
TEST(EventQueueTest, AnEventThatTheSnapshotIncludesIsIgnored) {
  int woken = 0;
  EventQueue queue({Event(kSnapshot, 2, JobState::kRunning)}, [&woken] { ++woken; });
  queue.Push(Event(kStateChange, 2, JobState::kRunning));
  EXPECT_EQ(woken, 0);
  EXPECT_EQ(queue.Next()->kind, kSnapshot);
  EXPECT_FALSE(queue.Next().has_value());
}

// Queued events still come, and the watcher is woken although nothing new does.
TEST(EventQueueTest, ASuspendedQueueEndsWithoutAnEnd) {
  int woken = 0;
  EventQueue queue({Event(kSnapshot, 1, JobState::kRunning)}, [&woken] { ++woken; });
  queue.Push(Event(kStateChange, 2, JobState::kQueued));
  queue.Suspend();
  EXPECT_EQ(woken, 2);
  EXPECT_FALSE(queue.suspended());
  EXPECT_TRUE(queue.goes_on()) << "whether or not its watcher reads";
  EXPECT_EQ(queue.Next()->kind, kSnapshot);
  EXPECT_EQ(queue.Next()->job->state, JobState::kQueued);
  EXPECT_TRUE(queue.suspended());
  EXPECT_FALSE(queue.ended());
  queue.Push(Event(kStateChange, 3, JobState::kCancelled));
  EXPECT_FALSE(queue.goes_on());
}

}  // namespace
}  // namespace sparsefw::server
