// What jobs count for beside what the database really takes.
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "server/jobs/job_store.h"
#include "server/storage/connection.h"
#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

constexpr int kJobs = 200;

struct Shape {
  std::string name;
  int labels = 0;
  int points = 0;
  bool request_id = false;
};

class KeptBytesTest : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(database_, Database::Open(folder_.path() + "/jobs.db"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(store_, NewSqliteJobStore(database_.get()));
    empty_ = PagesInUse();
  }

  // Names in no order, as the server gives them.
  static std::string NameOf(int i) {
    return absl::StrFormat("jobs/%08x%024x", static_cast<uint32_t>(i) * 2654435761U, i);
  }

  Job JobOf(int i) const {
    const Shape& shape = GetParam();
    Job job;
    job.name = NameOf(i);
    job.owner = {"tenant", "somebody"};
    job.spec.weight = job.spec.gram = "tensors/0123456789abcdef0123456789abcdef";
    for (int label = 0; label < shape.labels; ++label) {
      // Longest ones, each of its own.
      job.spec.labels[absl::StrFormat("%064d", label)] = absl::StrFormat("%0256d", i);
    }
    job.spec.sweep.resize(static_cast<size_t>(shape.points));
    for (SweepPoint& point : job.spec.sweep) point.options.alpha = 0.123;
    job.spec.preset_overrides = {"alpha", "iterations", "joint_excluded", "sparsegpt_damping"};
    if (shape.request_id) job.request_id = absl::StrFormat("%0128d", i);
    job.create_time = absl::FromUnixNanos(1'700'000'000'123'456'789);
    return job;
  }
  static SolveSummary Solved() {
    SolveSummary solve;
    solve.kept_count = solve.iterations = solve.swaps = int64_t{1} << 40;
    solve.full_loss = solve.warm_start_loss = solve.relaxed_loss = solve.rounded_loss = 0.1;
    solve.final_loss = solve.reconstructed_loss = solve.lower_bound = solve.drift = 0.1;
    solve.relative_reduction = solve.damping = 0.1;
    solve.new_weights_loss = 0.1;
    solve.load_time = solve.solve_time = absl::Nanoseconds(123'456'789'123);
    return solve;
  }
  JobResult ResultOf(const Job& job) const {
    JobResult result;
    result.mask = result.pruned_weight = "tensors/0123456789abcdef0123456789abcdef";
    result.device = "cpu";
    result.solve = Solved();
    for (size_t i = 0; i < job.spec.sweep.size(); ++i) {
      JobResult point;
      point.mask = result.mask;
      point.solve = Solved();
      result.sweep.push_back({absl::OkStatus(), point});
    }
    return result;
  }

  // Bytes of the pages of tables and indexes.
  int64_t PagesInUse() const {
    int64_t bytes = 0;
    SPARSEFW_EXPECT_OK(database_->Read([&](SQLite::Database& db) {
      const auto pragma = [&db](const char* name) {
        return db.execAndGet(absl::StrFormat("PRAGMA %s", name)).getInt64();
      };
      bytes = (pragma("page_count") - pragma("freelist_count")) * pragma("page_size");
      return absl::OkStatus();
    }));
    return bytes;
  }
  void ExpectAnUpperEnd(const std::string& when) {
    const int64_t grown = PagesInUse() - empty_;
    EXPECT_GE(store_->Usage()->bytes, grown) << when;
  }

  const testing::TempFolder folder_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<JobStore> store_;
  int64_t empty_ = 0;
};

TEST_P(KeptBytesTest, AreAnUpperEndOfWhatTheDatabaseTakes) {
  const std::string fingerprint(32, 'f');
  for (int i = 0; i < kJobs; ++i) {
    const Job job = JobOf(i);
    SPARSEFW_ASSERT_OK(store_->Insert(job, job.request_id, fingerprint, {}));
  }
  ExpectAnUpperEnd("queued");
  ProgressReport report;
  report.iteration = report.iterations_total = report.swaps = int64_t{1} << 40;
  report.relaxed_loss = report.gap = report.step_size = report.threshold_residual = 0.1;
  report.rounded_loss = report.best_loss = report.warm_start_loss = report.lower_bound = 0.1;
  report.elapsed = absl::Nanoseconds(123'456'789'123);
  for (int i = 0; i < kJobs; ++i) {
    Job job = JobOf(i);
    job.state = JobState::kRunning;
    job.states.assign(64, {JobState::kRunning, int64_t{1} << 40});
    SPARSEFW_ASSERT_OK(store_->Update(job));
    SPARSEFW_ASSERT_OK(store_->UpdateProgress(job.name, {report, int64_t{1} << 40}));
  }
  ExpectAnUpperEnd("running");
  for (int i = 0; i < kJobs; ++i) {
    Job job = JobOf(i);
    job.state = JobState::kSucceeded;
    job.states.assign(64, {JobState::kRunning, int64_t{1} << 40});
    job.progress = report;
    job.result = ResultOf(job);
    job.start_time = job.end_time = job.expire_time = job.create_time;
    SPARSEFW_ASSERT_OK(store_->Update(job));
  }
  ExpectAnUpperEnd("ended");
}

// Tensors have records beside those of jobs, and the disk has to hold both.
TEST(JobRoomTest, TheDiskHoldsTheWholeDatabase) {
  const testing::TempFolder folder;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(folder.path() + "/jobs.db"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto store, NewSqliteJobStore(database.get()));
  Job job;
  job.name = "jobs/a";
  SPARSEFW_ASSERT_OK(database->Write(Durability::kPowerLoss, [](SQLite::Database& db) {
    db.exec("INSERT INTO settings VALUES ('of a tensor', hex(zeroblob(500000)))");
    return absl::OkStatus();
  }));
  JobRoom room;
  room.disk_bytes = 1'000'000;
  EXPECT_THAT(store->Insert(job, "", "", room),
              testing::StatusIs(absl::StatusCode::kResourceExhausted, "DISK_BUDGET"));
  room.disk_bytes = 1'300'000;
  SPARSEFW_EXPECT_OK(store->Insert(job, "", "", room));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, KeptBytesTest,
    ::testing::Values(Shape{"Plain"}, Shape{"RequestId", 0, 0, true}, Shape{"Labels", 64, 0, true},
                      Shape{"OneLabel", 1, 0, true}, Shape{"TwoLabels", 2, 0, true},
                      Shape{"ThreeLabels", 3, 0, true}, Shape{"FourLabels", 4, 0, true},
                      Shape{"FiveLabels", 5, 0, true}, Shape{"TenLabels", 10, 0, true},
                      Shape{"SmallSweep", 0, 8, true}, Shape{"Sweep", 0, 256, true},
                      Shape{"Everything", 64, 256, true}),
    [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace sparsefw::server
