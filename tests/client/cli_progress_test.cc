// The output of the program while it waits: progress of jobs and transfers, the time left.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "client/cpp/cli/output/format.h"
#include "client/cpp/cli/output/progress.h"
#include "client/cpp/cli/output/time_left.h"
#include "tests/testing/matchers.h"

namespace sparsefw::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::JobEvent Report(int64_t iteration) {
  v1::JobEvent event;
  event.mutable_job()->set_name("jobs/7");
  event.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  v1::Progress& progress = *event.mutable_job()->mutable_progress();
  progress.set_iteration(iteration);
  progress.set_iterations_total(2000);
  progress.set_relaxed_loss(12345.67);
  progress.set_gap(123.4567);
  progress.set_best_loss(13000);
  progress.set_warm_start_loss(20000);
  progress.mutable_elapsed()->set_seconds(iteration / 100);  // 10 ms each
  progress.mutable_elapsed()->set_nanos(static_cast<int32_t>(iteration % 100) * 10'000'000);
  return event;
}

v1::JobEvent Queued(int ahead) {
  v1::JobEvent event;
  event.mutable_job()->set_name("jobs/7");
  event.mutable_job()->set_state(v1::JOB_STATE_QUEUED);
  event.mutable_job()->set_queue_position(ahead);
  return event;
}

class ProgressTest : public ::testing::Test {
 protected:
  ProgressDisplay Display(bool terminal, bool color = false, bool quiet = false) {
    return ProgressDisplay(
        Console{out_, err_, terminal, color, [this] { return columns_; }}, [this] { return now_; },
        quiet);
  }
  // The output since the last call.
  std::string Painted() {
    std::string text = err_.str();
    err_.str("");
    return text;
  }
  std::ostringstream out_;
  std::ostringstream err_;
  int columns_ = 120;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ProgressTest, APipeGetsOneLineAReport) {
  {
    ProgressDisplay display = Display(false);
    display.OnJob(Queued(2));
    display.OnJob(Queued(2));  // a heartbeat
    display.OnJob(Report(100));
    display.OnJob(Report(100));
    display.OnJob(Report(200));
  }
  EXPECT_EQ(
      err_.str(),
      "jobs/7 queued, 2 ahead\n"
      "jobs/7 running\n"
      "iteration 100/2000  relaxed 12346  converged to 1 %  best 13000 (35.0 % below the warm "
      "start)  19 s left\n"
      "iteration 200/2000  relaxed 12346  converged to 1 %  best 13000 (35.0 % below the warm "
      "start)  18 s left\n");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, ATerminalGetsOneLiveLine) {
  {
    ProgressDisplay display = Display(true);
    display.OnJob(Queued(2));
    display.OnJob(Queued(1));
    EXPECT_EQ(Painted(), "\r\033[Kjobs/7 queued, 2 ahead\r\033[Kjobs/7 queued, 1 ahead");
    now_ += absl::Seconds(1);
    display.OnJob(Report(500));
    EXPECT_EQ(Painted(),
              "\r\033[Kjobs/7 running\n"
              "\r\033[K[======>                       ]   25 %  500/2000  loss 35.0 % below warm "
              "start  converged to 1 %  15 s left");
    now_ += absl::Milliseconds(20);  // too soon to paint again
    display.OnJob(Report(501));
    EXPECT_EQ(Painted(), "");
    now_ += absl::Seconds(3);  // a heartbeat: the time goes on
    display.OnJob(Report(501));
    EXPECT_THAT(Painted(), HasSubstr("12 s left"));
  }
  EXPECT_EQ(err_.str(), "\r\033[K");
}

TEST_F(ProgressTest, ANarrowTerminalGetsTheFieldsThatFit) {
  ProgressDisplay display = Display(true);
  display.OnJob(Report(499));
  const auto painted = [&](int columns) {
    columns_ = columns;
    now_ += absl::Seconds(1);
    Painted();
    display.OnJob(Report(500));
    now_ += absl::Seconds(1);
    std::string text = Painted();
    return text.substr(text.rfind('K') + 1);
  };
  EXPECT_EQ(painted(80),
            "[=====>                     ]   25 %  loss 35.0 % below warm start  15 s left");
  for (int columns = 79; columns > 0; --columns) {
    EXPECT_LE(painted(columns).size(), static_cast<size_t>(std::max(columns - 3, 0))) << columns;
  }
  EXPECT_THAT(painted(60), HasSubstr("below warm start"));
  EXPECT_THAT(painted(30), ::testing::AllOf(HasSubstr("25 %"), HasSubstr("s left")));
  EXPECT_EQ(painted(10), " 25 %");
}

TEST_F(ProgressTest, ColorIsOfTheBarAlone) {
  ProgressDisplay display = Display(true, true);
  display.OnJob(Report(1000));
  EXPECT_THAT(err_.str(),
              HasSubstr("[\033[32m==============>\033[0m               ]   50 %  1000/2000"));
}

TEST_F(ProgressTest, AfterTheIterationTheRefinementIsNamed) {
  ProgressDisplay display = Display(true);
  v1::JobEvent last = Report(2000);
  last.mutable_job()->mutable_spec()->mutable_refine()->set_swaps(true);
  last.mutable_job()->mutable_spec()->set_reconstruct(true);
  display.OnJob(last);
  EXPECT_THAT(Painted(), HasSubstr("swapping, then reconstruction"));
  last.mutable_job()->mutable_progress()->set_swaps(12);
  display.OnJob(last);
  EXPECT_THAT(Painted(), HasSubstr("12 swaps, reconstructing"));
}

TEST_F(ProgressTest, APointThatASweepDoesNotHaveIsNone) {
  ProgressDisplay display = Display(true);
  v1::JobEvent last = Report(2000);
  for (const int point : {-1, 1, 1 << 30}) {
    last.mutable_job()->mutable_progress()->set_sweep_point(point);
    display.OnJob(last);
  }
  EXPECT_THAT(Painted(), HasSubstr("2000/2000"));
}

TEST_F(ProgressTest, ASweepCountsItsPoints) {
  v1::JobEvent event = Report(1000);
  for (int point = 0; point < 4; ++point)
    event.mutable_job()->mutable_spec()->mutable_sweep()->add_points();
  event.mutable_job()->mutable_progress()->set_sweep_point(2);
  ProgressDisplay terminal = Display(true);
  terminal.OnJob(event);
  EXPECT_THAT(Painted(), ::testing::AllOf(HasSubstr(" 62 %"), HasSubstr("point 3/4  1000/2000"),
                                          HasSubstr("30 s left")));
  // The same iteration of the next point is a report of its own.
  ProgressDisplay pipe = Display(false);
  pipe.OnJob(event);
  event.mutable_job()->mutable_progress()->set_sweep_point(3);
  now_ += absl::Seconds(1);
  pipe.OnJob(event);
  EXPECT_THAT(Painted(), ::testing::AllOf(HasSubstr("\npoint 3/4  iteration 1000/2000"),
                                          HasSubstr("\npoint 4/4  iteration 1000/2000")));
}

TEST_F(ProgressTest, APipeGetsFewReportsAndTheLast) {
  ProgressDisplay display = Display(false);
  const auto lines = [this] {
    const std::string text = Painted();
    return std::count(text.begin(), text.end(), '\n');
  };
  display.OnJob(Report(100));
  EXPECT_EQ(lines(), 2);  // with "running"
  for (int i = 2; i < 20; ++i) display.OnJob(Report(100 * i));
  EXPECT_EQ(lines(), 0);
  v1::JobEvent end = Report(2000);
  end.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
  display.OnJob(end);
  EXPECT_EQ(Painted().substr(0, 20), "iteration 1900/2000 ");
  // The longer a job runs, the rarer they are.
  now_ += absl::Hours(1);
  v1::JobEvent late = Report(100);
  late.mutable_job()->mutable_progress()->mutable_elapsed()->set_seconds(3600);
  display.OnJob(late);
  Painted();
  now_ += absl::Seconds(100);
  display.OnJob(Report(200));
  EXPECT_EQ(lines(), 0);
}

TEST_F(ProgressTest, TimeGoesOnWhereNothingIsReported) {
  v1::JobEvent silent;
  silent.mutable_job()->set_name("jobs/7");
  silent.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  silent.mutable_job()->mutable_spec()->set_method(v1::METHOD_ALPS);
  silent.mutable_job()->mutable_spec()->mutable_refine()->set_joint(true);
  ProgressDisplay terminal = Display(true);
  ProgressDisplay pipe = Display(false);
  terminal.Tick();  // no job yet
  EXPECT_EQ(Painted(), "");
  terminal.OnJob(silent);
  Painted();
  now_ += absl::Seconds(1);
  terminal.Tick();
  EXPECT_EQ(Painted(), "\r\033[Krunning alps, then the joint search  1.0 s so far");
  // A phase without reports after the last iteration.
  v1::JobEvent last = Report(2000);
  last.mutable_job()->mutable_spec()->mutable_refine()->set_swaps(true);
  terminal.OnJob(last);
  Painted();
  now_ += absl::Seconds(3);
  terminal.Tick();
  EXPECT_THAT(Painted(), ::testing::EndsWith("swapping  23.0 s so far"));
  pipe.OnJob(silent);
  Painted();
  pipe.Tick();
  EXPECT_EQ(Painted(), "");
  now_ += absl::Seconds(11);
  pipe.Tick();
  EXPECT_EQ(Painted(), "running alps, then the joint search  11.0 s so far\n");
  pipe.Tick();
  EXPECT_EQ(Painted(), "");
}

TEST_F(ProgressTest, QuietLeavesOnlyNotes) {
  ProgressDisplay display = Display(true, false, true);
  display.StartTransfer("uploading", "w");
  display.OnTransfer({1, 1});
  display.EndTransfer();
  display.OnJob(Report(100));
  EXPECT_EQ(err_.str(), "");
  display.Note("kept tensors/1");
  EXPECT_EQ(err_.str(), "\r\033[Kkept tensors/1\n");
}

TEST(TimeLeftTest, OneSlowReportDoesNotMoveTheEstimate) {
  TimeLeft left;
  int64_t seconds = 0;
  for (int64_t iteration = 100; iteration <= 1000; iteration += 100) {
    seconds += iteration == 600 ? 50 : 1;
    v1::Job job = Report(iteration).job();
    job.mutable_progress()->mutable_elapsed()->set_seconds(seconds);
    left.Add(job);
  }
  EXPECT_EQ(left.estimate(), absl::Seconds(10));
}

TEST(TimeLeftTest, NotBeyondTheDeadline) {
  v1::Job job = Report(500).job();  // 15 s by its pace
  job.mutable_create_time()->set_seconds(100);
  job.mutable_start_time()->set_seconds(103);
  job.mutable_spec()->mutable_deadline()->set_seconds(10);
  TimeLeft left;
  left.Add(job);
  EXPECT_EQ(left.estimate(), absl::Seconds(10 - 3 - 5));
}

TEST_F(ProgressTest, TransfersShowSizeAndRate) {
  ProgressDisplay display = Display(true);
  display.StartTransfer("uploading", "w.safetensors");
  now_ += absl::Seconds(2);
  display.OnTransfer({int64_t{20} << 20, int64_t{80} << 20});
  EXPECT_EQ(err_.str(),
            "\r\033[Kuploading w.safetensors  [======>                       ]   25 %  20.0 MiB of "
            "80.0 MiB  10.0 MiB/s  6 s left");
  now_ += absl::Seconds(2);
  display.OnTransfer({int64_t{80} << 20, int64_t{80} << 20});
  err_.str("");
  display.EndTransfer();
  EXPECT_EQ(err_.str(), "\r\033[Kuploading w.safetensors  80.0 MiB in 4.0 s  20.0 MiB/s\n");
}

TEST_F(ProgressTest, APipeGetsOneLineATransfer) {
  ProgressDisplay display = Display(false);
  display.StartTransfer("uploading", "w");
  now_ += absl::Seconds(1);
  display.OnTransfer({512, 1024});
  display.OnTransfer({1024, 1024});
  EXPECT_EQ(err_.str(), "");
  display.EndTransfer();
  EXPECT_EQ(err_.str(), "uploading w  1.0 KiB in 1.0 s  1.0 KiB/s\n");
}

}  // namespace
}  // namespace sparsefw::cli
