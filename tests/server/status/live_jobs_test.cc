#include "server/status/live_jobs.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

namespace sparsefw::server {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Job JobNamed(const std::string& name) {
  Job job;
  job.name = name;
  job.rows = 10;
  job.cols = 20;
  job.spec.pattern = Pattern::PerRow(0.6);
  job.create_time = job.start_time = absl::UnixEpoch();
  return job;
}

ProgressReport At(int64_t iteration, int sweep_point = 0) {
  ProgressReport report;
  report.iteration = iteration;
  report.relaxed_loss = 100.0 - static_cast<double>(iteration);
  report.sweep_point = sweep_point;
  return report;
}

TEST(LiveJobsTest, AJobIsThereFromItsAcceptanceToItsEnd) {
  LiveJobs jobs;
  const Job job = JobNamed("jobs/a");
  jobs.Accepted(job);
  jobs.Accepted(JobNamed("jobs/b"));
  EXPECT_EQ(jobs.Look(9).queue_length, 2);
  EXPECT_EQ(jobs.Look(9).queued[0].name, "jobs/a") << "the oldest first";
  EXPECT_THAT(jobs.Look(1).queued, SizeIs(1));
  EXPECT_EQ(jobs.Look(1).queue_length, 2);
  jobs.Started(job);
  jobs.Progressed(job.name, At(7));
  const LiveJobs::View view = jobs.Look(9);
  ASSERT_THAT(view.running, SizeIs(1));
  EXPECT_EQ(view.queue_length, 1);
  EXPECT_EQ(view.running[0].pattern, ToString(job.spec.pattern));
  EXPECT_EQ(view.running[0].progress.iteration, 7);
  ASSERT_THAT(view.running[0].trace, SizeIs(1));
  jobs.Gone(job);
  jobs.Progressed(job.name, At(8));  // late
  EXPECT_THAT(jobs.Look(9).running, IsEmpty());
}

TEST(LiveJobsTest, ATraceStaysShortAndEvenlySpread) {
  LiveJobs jobs;
  const Job job = JobNamed("jobs/a");
  jobs.Accepted(job);
  jobs.Started(job);
  for (int64_t i = 0; i < 5000; ++i) jobs.Progressed(job.name, At(i));
  const std::vector<TracePoint> trace = jobs.Look(1).running[0].trace;
  EXPECT_LE(trace.size(), LiveJobs::kTracePoints);
  EXPECT_GT(trace.size(), LiveJobs::kTracePoints / 4);
  ASSERT_GT(trace.size(), 2U);
  EXPECT_EQ(trace[0].iteration, 0);
  for (size_t i = 2; i < trace.size(); ++i) {
    EXPECT_EQ(trace[i].iteration - trace[i - 1].iteration, trace[1].iteration);
  }
  // Another point of a sweep is another curve.
  jobs.Progressed(job.name, At(3, 1));
  EXPECT_THAT(jobs.Look(1).running[0].trace, SizeIs(1));
}

TEST(LiveJobsTest, TheLastEndedAreKept) {
  LiveJobs jobs;
  for (size_t i = 0; i < LiveJobs::kEndedKept + 5; ++i) {
    Job job = JobNamed("jobs/" + std::to_string(i));
    job.spec.labels = {{"layer", std::to_string(i)}};
    jobs.Accepted(job);
    jobs.Started(job);
    jobs.Progressed(job.name, At(1));
    job.state = JobState::kCancelled;
    job.end_time = absl::UnixEpoch() + absl::Seconds(i);
    jobs.Ended(job);
  }
  const LiveJobs::View view = jobs.Look(9);
  EXPECT_THAT(view.running, IsEmpty());
  ASSERT_THAT(view.ended, SizeIs(LiveJobs::kEndedKept));
  EXPECT_EQ(view.ended[0].job.name, "jobs/24") << "the latest first";
  EXPECT_EQ(view.ended[0].job.labels.labels.at("layer"), "24");
  EXPECT_EQ(view.ended[0].end.state, JobState::kCancelled);
  EXPECT_THAT(view.ended[0].job.trace, IsEmpty());
  EXPECT_EQ(view.ended.back().job.name, "jobs/5");
}

TEST(LiveJobsTest, AJobForALaterProcessHasNotEnded) {
  LiveJobs jobs;
  const Job job = JobNamed("jobs/a");
  jobs.Accepted(job);
  jobs.Gone(job);
  jobs.Ended(job);
  EXPECT_THAT(jobs.Look(9).ended, IsEmpty());
}

TEST(LiveJobsTest, FromSeveralThreads) {
  LiveJobs jobs;
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) jobs.Look(5);
  });
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([&jobs, t] {
      for (int i = 0; i < 200; ++i) {
        const Job job = JobNamed("jobs/" + std::to_string(t));
        jobs.Accepted(job);
        jobs.Started(job);
        jobs.Progressed(job.name, At(i));
        i % 2 == 0 ? jobs.Gone(job) : jobs.Ended(job);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  stop = true;
  reader.join();
  EXPECT_EQ(jobs.Look(5).queue_length, 0);
}

}  // namespace
}  // namespace sparsefw::server
