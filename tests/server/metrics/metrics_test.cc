#include "server/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public ::testing::Test {
 protected:
  // The value of the series, as text; "" when there is none.
  std::string Value(const std::string& series) const {
    std::istringstream lines(metrics_->Text());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(series + " ")) return line.substr(series.size() + 1);
    }
    return "";
  }

  const std::unique_ptr<Metrics> metrics_ = std::make_unique<Metrics>(
      BuildInfo{"1.2.3", "gcc 12", "Release"},
      std::vector<DeviceInfo>{{"cuda:0", "a \"GPU\"", true, "--device cuda"},
                              {"cpu", "a CPU", false, ""}},
      absl::FromUnixSeconds(1'700'000'000));
};

TEST_F(MetricsTest, SaysWhatRunsSinceWhen) {
  EXPECT_EQ(Value("sparsefw_build_info{build_type=\"Release\",compiler=\"gcc 12\","
                  "version=\"1.2.3\"}"),
            "1");
  EXPECT_EQ(Value("sparsefw_start_time_seconds"), "1700000000");
}

TEST_F(MetricsTest, SaysWhichDevicesThereAreAndWhyOneIsTheDefault) {
  EXPECT_EQ(Value("sparsefw_device_info{default=\"true\",description=\"a \\\"GPU\\\"\","
                  "device=\"cuda:0\",reason=\"--device cuda\"}"),
            "1");
  EXPECT_EQ(Value("sparsefw_device_info{default=\"false\",description=\"a CPU\",device=\"cpu\","
                  "reason=\"\"}"),
            "1");
}

TEST_F(MetricsTest, CountsRpcsByMethodAndCode) {
  const std::string method = "PruneService/GetJob";
  const std::string label = "{method=\"" + method + "\"}";
  EXPECT_EQ(Value("sparsefw_rpc_started_total" + label), "0") << "there from the start";
  metrics_->RpcStarted(method);
  metrics_->RpcStarted(method);
  metrics_->RpcStarted(method);
  metrics_->RpcEnded(method, absl::StatusCode::kOk, absl::Milliseconds(2));
  metrics_->RpcEnded(method, absl::StatusCode::kNotFound, absl::Seconds(2));
  EXPECT_EQ(Value("sparsefw_rpc_started_total" + label), "3");
  EXPECT_EQ(Value("sparsefw_rpc_in_flight" + label), "1");
  const auto duration = [&](const std::string& what, const std::string& code,
                            const std::string& bucket) {
    return Value("sparsefw_rpc_duration_seconds_" + what + "{code=\"" + code + "\",method=\"" +
                 method + "\"" + bucket + "}");
  };
  EXPECT_EQ(duration("count", "OK", ""), "1");
  EXPECT_EQ(duration("sum", "OK", ""), "0.002");
  EXPECT_EQ(duration("bucket", "OK", ",le=\"0.001\""), "0");
  EXPECT_EQ(duration("bucket", "OK", ",le=\"0.003\""), "1");
  EXPECT_EQ(duration("count", "NOT_FOUND", ""), "1");
  EXPECT_EQ(duration("bucket", "NOT_FOUND", ",le=\"1\""), "0");
  EXPECT_EQ(duration("count", "INTERNAL", ""), "") << "never seen";
}

TEST_F(MetricsTest, UnknownMethodsCodesAndReasonsShareOneSeries) {
  for (const char* method : {"Nobody/Knows", "PruneService/GetJob2", ""}) {
    metrics_->RpcStarted(method);
    metrics_->RpcEnded(method, static_cast<absl::StatusCode>(99), absl::ZeroDuration());
    metrics_->ChunkRejected(method);
  }
  metrics_->ChunkRejected("CHECKSUM_MISMATCH");
  EXPECT_EQ(Value("sparsefw_rpc_started_total{method=\"other\"}"), "3");
  EXPECT_EQ(Value("sparsefw_rpc_in_flight{method=\"other\"}"), "0");
  EXPECT_EQ(Value("sparsefw_rpc_duration_seconds_count{code=\"UNKNOWN\",method=\"other\"}"), "3");
  EXPECT_EQ(Value("sparsefw_chunks_rejected_total{reason=\"other\"}"), "3");
  EXPECT_EQ(Value("sparsefw_chunks_rejected_total{reason=\"CHECKSUM_MISMATCH\"}"), "1");
  EXPECT_THAT(metrics_->Text(), Not(HasSubstr("GetJob2")));
}

TEST_F(MetricsTest, CountsBytesBeyond32Bits) {
  metrics_->BytesReceived("TensorService/WriteTensor", int64_t{5} << 32);
  metrics_->BytesReceived("TensorService/WriteTensor", 1);
  metrics_->BytesSent("TensorService/ReadTensor", 7);
  EXPECT_EQ(Value("sparsefw_rpc_received_bytes_total{method=\"TensorService/WriteTensor\"}"),
            "21474836481");
  EXPECT_EQ(Value("sparsefw_rpc_sent_bytes_total{method=\"TensorService/ReadTensor\"}"), "7");
}

Job ExampleJob() {
  Job job;
  job.spec.options.method = Method::kSparseFw;
  job.spec.pattern.kind = Pattern::Kind::kKeepOfGroup;
  job.create_time = absl::FromUnixSeconds(100);
  job.start_time = absl::FromUnixSeconds(102);
  job.state = JobState::kSucceeded;
  job.result.emplace();
  job.result->device = "cuda:1";
  job.result->solve.iterations = 150;
  job.result->solve.relative_reduction = 0.25;
  job.result->solve.final_loss = 8;
  job.result->solve.lower_bound = 6;
  job.result->solve.screening = {.epochs = 3, .iterations = 90, .active_share = 0.04};
  job.result->solve.solve_time = absl::Milliseconds(1500);
  return job;
}

TEST_F(MetricsTest, FollowsAJobFromAcceptanceToItsResult) {
  const Job job = ExampleJob();
  metrics_->JobAccepted(job);
  metrics_->JobStarted(job);
  metrics_->JobEnded(job);
  EXPECT_EQ(Value("sparsefw_jobs_submitted_total{method=\"sparsefw\",pattern=\"nm\"}"), "1");
  EXPECT_EQ(Value("sparsefw_job_queue_seconds_sum"), "2");
  EXPECT_EQ(Value("sparsefw_jobs_finished_total{method=\"sparsefw\",reason=\"ITERATIONS\","
                  "state=\"succeeded\"}"),
            "1");
  EXPECT_EQ(Value("sparsefw_job_solve_seconds_sum{device=\"cuda\",method=\"sparsefw\"}"), "1.5");
  EXPECT_EQ(Value("sparsefw_job_iterations_sum{method=\"sparsefw\"}"), "150");
  EXPECT_EQ(Value("sparsefw_screened_iterations_total"), "90");
  EXPECT_EQ(Value("sparsefw_screening_epochs_total"), "3");
  EXPECT_EQ(Value("sparsefw_job_active_ratio_sum{method=\"sparsefw\"}"), "0.04");
  EXPECT_EQ(Value("sparsefw_job_reduction_ratio_sum{method=\"sparsefw\"}"), "0.25");
  EXPECT_EQ(Value("sparsefw_job_reduction_ratio_bucket{method=\"sparsefw\",le=\"0.2\"}"), "0");
  EXPECT_EQ(Value("sparsefw_job_reduction_ratio_bucket{method=\"sparsefw\",le=\"0.3\"}"), "1");
  EXPECT_EQ(Value("sparsefw_job_gap_ratio_sum{method=\"sparsefw\"}"), "0.25");
}

// A bound of 0 always holds: it is no certificate.
TEST_F(MetricsTest, JobsWithoutACertificateHaveNoGap) {
  Job job = ExampleJob();
  job.result->solve.lower_bound = 0;
  metrics_->JobEnded(job);
  EXPECT_EQ(Value("sparsefw_job_reduction_ratio_count{method=\"sparsefw\"}"), "1");
  EXPECT_EQ(Value("sparsefw_job_gap_ratio_count{method=\"sparsefw\"}"), "");
}

TEST_F(MetricsTest, CountsRefusalsByReasonElseByCode) {
  metrics_->RpcRefused(WithReason(absl::ResourceExhaustedError("full"), "QUEUE_FULL"));
  metrics_->RpcRefused(WithReasonText(absl::ResourceExhaustedError("full"), "MADE_UP"));
  metrics_->RpcRefused(absl::UnauthenticatedError("who?"));
  metrics_->RpcRefused(absl::CancelledError("the client gave up"));
  metrics_->RpcRefused(absl::OkStatus());
  metrics_->JobBackgroundError(WithReason(absl::ResourceExhaustedError("full"), "STORE_FULL"));
  EXPECT_EQ(Value("sparsefw_job_background_errors_total{reason=\"STORE_FULL\"}"), "1");
  EXPECT_EQ(Value("sparsefw_rpc_refused_total{reason=\"QUEUE_FULL\"}"), "1");
  EXPECT_EQ(Value("sparsefw_rpc_refused_total{reason=\"RESOURCE_EXHAUSTED\"}"), "1");
  EXPECT_EQ(Value("sparsefw_rpc_refused_total{reason=\"UNAUTHENTICATED\"}"), "1");
  EXPECT_THAT(metrics_->Text(), Not(HasSubstr("sparsefw_rpc_refused_total{reason=\"CANCELLED")));
}

TEST_F(MetricsTest, JobsWithoutAResultCountAsFinishedOnly) {
  Job job = ExampleJob();
  job.result.reset();
  job.state = JobState::kFailed;
  job.error = WithReason(absl::DeadlineExceededError("late"), "DEADLINE_EXCEEDED");
  metrics_->JobEnded(job);
  EXPECT_EQ(Value("sparsefw_jobs_finished_total{method=\"sparsefw\",reason=\"DEADLINE_EXCEEDED\","
                  "state=\"failed\"}"),
            "1");
  EXPECT_THAT(metrics_->Text(), Not(HasSubstr("sparsefw_job_iterations_count{")));
}

// What is not known is not 0.
TEST_F(MetricsTest, EndedJobsAreLeftOutWhileNobodyHasCountedThem) {
  metrics_->SetGauges([] { return Gauges{.jobs_queued = 1}; });
  EXPECT_EQ(Value("sparsefw_jobs{state=\"queued\"}"), "1");
  EXPECT_EQ(Value("sparsefw_jobs{state=\"failed\"}"), "");
}

TEST_F(MetricsTest, GaugesAreComputedAtEveryScrape) {
  EXPECT_EQ(Value("sparsefw_draining"), "");
  Gauges gauges;
  metrics_->SetGauges([&gauges] { return gauges; });
  gauges = {.jobs_queued = 1,
            .jobs_running = 2,
            .tenants_waiting = 23,
            .tenants_running = 24,
            .jobs_kept = KeptJobs{3, 4, 5, 25, 26},
            .store_count_failures = 22,
            .tensors = {.budget_bytes = int64_t{1} << 40,
                        .used_bytes = 7,
                        .device_sum_budget_bytes = 29,
                        .device_sum_used_bytes = 30,
                        .sums_without_room = 31,
                        .tensors = 10,
                        .uploads = 11},
            .job_budget_bytes = 27,
            .database_bytes = 28,
            .staging_budget_bytes = 8,
            .staging_used_bytes = 9,
            .solve_memory_budget_bytes = 14,
            .solve_memory_used_bytes = 15,
            .watchers = 12,
            .executors = {{.name = "sums",
                           .queued = 25,
                           .oldest_wait = absl::Milliseconds(2500),
                           .begun = 26,
                           .withdrawn = 27}},
            .draining = true,
            .devices = {{.device = {"cuda:0", 16, 4}, .reserved_bytes = 17, .jobs = 3},
                        {.device = {"cuda:1", 18, 4}, .lost = true}}};
  gauges.devices[1].gram_bytes = 19;
  gauges.devices[1].gram_uploads = 20;
  gauges.devices[1].gram_reuses = 21;
  EXPECT_EQ(Value("sparsefw_jobs{state=\"queued\"}"), "1");
  EXPECT_EQ(Value("sparsefw_jobs{state=\"running\"}"), "2");
  EXPECT_EQ(Value("sparsefw_tenants{state=\"queued\"}"), "23");
  EXPECT_EQ(Value("sparsefw_tenants{state=\"running\"}"), "24");
  EXPECT_EQ(Value("sparsefw_jobs{state=\"succeeded\"}"), "3");
  EXPECT_EQ(Value("sparsefw_jobs{state=\"failed\"}"), "4");
  EXPECT_EQ(Value("sparsefw_jobs{state=\"cancelled\"}"), "5");
  EXPECT_EQ(Value("sparsefw_jobs_damaged"), "25");
  EXPECT_EQ(Value("sparsefw_job_used_bytes"), "26");
  EXPECT_EQ(Value("sparsefw_job_budget_bytes"), "27");
  EXPECT_EQ(Value("sparsefw_database_bytes"), "28");
  EXPECT_EQ(Value("sparsefw_job_count_failures_total"), "22");
  EXPECT_EQ(Value("sparsefw_job_queue_depth"), "1");
  EXPECT_EQ(Value("sparsefw_memory_budget_bytes"), "1099511627776");
  EXPECT_EQ(Value("sparsefw_memory_used_bytes"), "7");
  EXPECT_EQ(Value("sparsefw_device_sum_budget_bytes"), "29");
  EXPECT_EQ(Value("sparsefw_device_sum_used_bytes"), "30");
  EXPECT_EQ(Value("sparsefw_sums_without_device_room_total"), "31");
  EXPECT_EQ(Value("sparsefw_staging_budget_bytes"), "8");
  EXPECT_EQ(Value("sparsefw_staging_used_bytes"), "9");
  EXPECT_EQ(Value("sparsefw_solve_memory_budget_bytes"), "14");
  EXPECT_EQ(Value("sparsefw_solve_memory_used_bytes"), "15");
  EXPECT_EQ(Value("sparsefw_tensors"), "10");
  EXPECT_EQ(Value("sparsefw_uploads"), "11");
  EXPECT_EQ(Value("sparsefw_watchers"), "12");
  EXPECT_EQ(Value("sparsefw_executor_queue_length{executor=\"sums\"}"), "25");
  EXPECT_EQ(Value("sparsefw_executor_oldest_wait_seconds{executor=\"sums\"}"), "2.5");
  EXPECT_EQ(Value("sparsefw_executor_begun_total{executor=\"sums\"}"), "26");
  EXPECT_EQ(Value("sparsefw_executor_withdrawn_total{executor=\"sums\"}"), "27");
  EXPECT_EQ(Value("sparsefw_draining"), "1");
  EXPECT_EQ(Value("sparsefw_device_lost{device=\"cuda:0\"}"), "0");
  EXPECT_EQ(Value("sparsefw_device_lost{device=\"cuda:1\"}"), "1");
  EXPECT_EQ(Value("sparsefw_device_memory_budget_bytes{device=\"cuda:0\"}"), "16");
  EXPECT_EQ(Value("sparsefw_device_memory_used_bytes{device=\"cuda:0\"}"), "17");
  EXPECT_EQ(Value("sparsefw_device_streams{device=\"cuda:1\"}"), "4");
  EXPECT_EQ(Value("sparsefw_device_jobs{device=\"cuda:0\"}"), "3");
  EXPECT_EQ(Value("sparsefw_device_gram_bytes{device=\"cuda:0\"}"), "0");
  EXPECT_EQ(Value("sparsefw_device_gram_bytes{device=\"cuda:1\"}"), "19");
  EXPECT_EQ(Value("sparsefw_device_gram_uploads_total{device=\"cuda:1\"}"), "20");
  EXPECT_EQ(Value("sparsefw_device_gram_reuses_total{device=\"cuda:1\"}"), "21");
  gauges.jobs_queued = 0;
  EXPECT_EQ(Value("sparsefw_job_queue_depth"), "0");
}

TEST_F(MetricsTest, GpusHaveTheReadingsThatAreKnown) {
  Gauges gauges;
  metrics_->SetGauges([&gauges] { return gauges; });
  EXPECT_THAT(metrics_->Text(), Not(HasSubstr("sparsefw_gpu_")));
  gauges.gpus = {{.device = "cuda:0"}};
  EXPECT_THAT(metrics_->Text(), Not(HasSubstr("sparsefw_gpu_")));

  gauges.gpus = {{.device = "cuda:0",
                  .memory = GpuSample::Memory{.used_bytes = 2'000'000, .total_bytes = 8'000'000},
                  .utilization = 0.25,
                  .memory_utilization = 0.5,
                  .power_watts = 123.5},
                 {.device = "cuda:1", .temperature_celsius = 0}};
  std::string lines;
  std::istringstream scrape(metrics_->Text());
  for (std::string line; std::getline(scrape, line);) {
    if (line.starts_with("sparsefw_gpu_")) lines += line + "\n";
  }
  EXPECT_EQ(lines,
            "sparsefw_gpu_memory_used_bytes{device=\"cuda:0\"} 2000000\n"
            "sparsefw_gpu_memory_capacity_bytes{device=\"cuda:0\"} 8000000\n"
            "sparsefw_gpu_utilization_ratio{device=\"cuda:0\"} 0.25\n"
            "sparsefw_gpu_memory_utilization_ratio{device=\"cuda:0\"} 0.5\n"
            "sparsefw_gpu_temperature_celsius{device=\"cuda:1\"} 0\n"
            "sparsefw_gpu_power_watts{device=\"cuda:0\"} 123.5\n");
}

TEST_F(MetricsTest, NothingIsLostBetweenThreads) {
  constexpr int kThreads = 8;
  constexpr int kCalls = 500;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this] {
      for (int call = 0; call < kCalls; ++call) {
        metrics_->RpcStarted("PruneService/GetJob");
        metrics_->RpcEnded("PruneService/GetJob", absl::StatusCode::kAborted,
                           absl::Milliseconds(1));
        metrics_->ChunkRejected("OFFSET_GAP");
        metrics_->JobEnded(ExampleJob());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Value("sparsefw_rpc_in_flight{method=\"PruneService/GetJob\"}"), "0");
  for (const char* series :
       {"sparsefw_rpc_started_total{method=\"PruneService/GetJob\"}",
        "sparsefw_rpc_duration_seconds_count{code=\"ABORTED\",method=\"PruneService/GetJob\"}",
        "sparsefw_chunks_rejected_total{reason=\"OFFSET_GAP\"}",
        "sparsefw_job_iterations_count{method=\"sparsefw\"}"}) {
    EXPECT_EQ(Value(series), std::to_string(kThreads * kCalls)) << series;
  }
}

// Every label set that can occur, and still few enough series.
TEST_F(MetricsTest, PromtoolFindsNothingToCriticise) {
  metrics_->SetGauges([] {
    Gauges gauges;
    gauges.devices = {{.device = {"cuda:0", 16, 4}}};
    gauges.executors = {{.name = "quick"}};
    gauges.gpus = {{.device = "cuda:0",
                    .memory = GpuSample::Memory{},
                    .utilization = 0,
                    .memory_utilization = 0,
                    .temperature_celsius = 0,
                    .power_watts = 0}};
    return gauges;
  });
  metrics_->RpcStarted("x");
  metrics_->RpcEnded("x", absl::StatusCode::kInternal, absl::Seconds(1));
  metrics_->ChunkRejected("OFFSET_GAP");
  metrics_->JobAccepted(ExampleJob());
  metrics_->JobStarted(ExampleJob());
  metrics_->JobEnded(ExampleJob());
  const std::string text = metrics_->Text();
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 1000);

  if (std::system("command -v promtool > /dev/null") != 0) {
    GTEST_SKIP() << "promtool is not installed (Debian package prometheus)";
  }
  const std::string path = ::testing::TempDir() + "/sparsefw_metrics_test.txt";
  std::ofstream(path) << text;
  const std::string command = "promtool check metrics < '" + path + "' 2>&1";
  FILE* promtool = popen(command.c_str(), "r");
  ASSERT_NE(promtool, nullptr);
  std::string complaints;
  std::array<char, 4096> buffer;
  while (const size_t size = std::fread(buffer.data(), 1, buffer.size(), promtool)) {
    complaints.append(buffer.data(), size);
  }
  EXPECT_EQ(pclose(promtool), 0);
  EXPECT_EQ(complaints, "");
  std::remove(path.c_str());
}

TEST_F(MetricsTest, ExpiryOfTheCertificate) {
  constexpr char kName[] = "sparsefw_tls_certificate_expiry_timestamp_seconds";
  Gauges gauges;
  metrics_->SetGauges([&gauges] { return gauges; });
  EXPECT_THAT(metrics_->Text(), Not(HasSubstr(kName))) << "plain text has none";
  gauges.tls_certificate_expiry = absl::FromUnixSeconds(1'999'999'999);
  EXPECT_EQ(Value(kName), "1999999999");
}

}  // namespace
}  // namespace sparsefw::server
