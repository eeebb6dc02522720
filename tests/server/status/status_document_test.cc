#include <gmock/gmock.h>

#include "nlohmann/json.hpp"
#include "server/status/status_page.h"

namespace sparsefw::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

LiveJob Running() {
  LiveJob job;
  job.number = 3;
  job.name = "jobs/secret";
  job.labels = {{{"layer", "hidden<b>"}}, 2};
  job.method = "sparsefw";
  job.rows = 4;
  job.cols = 8;
  job.create_time = absl::FromUnixSeconds(100);
  job.start_time = absl::FromUnixSeconds(150);
  job.progress.iteration = 40;
  job.progress.iterations_total = 100;
  job.progress.warm_start_loss = 200;
  job.progress.best_loss = 150;
  job.progress.relaxed_loss = 140;
  job.progress.gap = 14;
  job.trace = {{10, 160, 170}, {40, 140, 150}};
  return job;
}

nlohmann::json Document(const StatusFacts& facts, const Gauges& gauges = {}) {
  LiveJobs::View jobs;
  jobs.running = {Running()};
  jobs.ended = {{Running(),
                 {.state = JobState::kSucceeded,
                  .reason = "GAP",
                  .time = absl::FromUnixSeconds(180),
                  .ran = absl::Seconds(30),
                  .loss = 0.04,
                  .certificate = {}}}};
  const std::vector<Refusal> refusals = {{absl::FromUnixSeconds(190), "PruneService/CreateJob",
                                          "RESOURCE_EXHAUSTED", "QUEUE_FULL", 5}};
  return nlohmann::json::parse(
      StatusDocument(facts, gauges, jobs, refusals, absl::FromUnixSeconds(200)));
}

TEST(StatusDocumentTest, SaysWhatRunsAndWhatIsUsed) {
  Gauges gauges;
  gauges.jobs_queued = 7;
  gauges.jobs_running = 1;
  gauges.tensors.used_bytes = 10;
  gauges.tensors.budget_bytes = 40;
  gauges.devices = {{.device = {"cuda:0", 100, 2}, .reserved_bytes = 60, .jobs = 1, .lost = true}};
  const auto json = Document({.version = "1.2.3",
                              .start_time = absl::FromUnixSeconds(50),
                              .not_ready = "draining",
                              .show_names = true},
                             gauges);
  EXPECT_EQ(json["uptime_s"], 150);
  EXPECT_EQ(json["ready"], false);
  EXPECT_EQ(json["not_ready"], "draining");
  EXPECT_EQ(json["jobs"]["queued"], 7);
  EXPECT_FALSE(json["jobs"].contains("succeeded")) << "the store has not been read yet";
  const auto& job = json["running"][0];
  EXPECT_EQ(job["name"], "jobs/secret");
  EXPECT_EQ(job["running_s"], 50);
  EXPECT_DOUBLE_EQ(job["reduction"], 0.25);
  EXPECT_DOUBLE_EQ(job["relative_gap"], 0.1);
  EXPECT_EQ(job["trace"][1][0], 40);
  EXPECT_EQ(job["warm_start_loss"], 200);
  EXPECT_EQ(job["labels"]["layer"], "hidden<b>");
  EXPECT_EQ(job["labels_left_out"], 2);
  const auto& ended = json["ended"][0];
  EXPECT_EQ(ended["state"], "succeeded");
  EXPECT_EQ(ended["reason"], "GAP");
  EXPECT_EQ(ended["end_time"], 180);
  EXPECT_EQ(ended["ran_s"], 30);
  EXPECT_EQ(ended["loss"], 0.04);
  EXPECT_TRUE(ended["certificate"].is_null());
  EXPECT_EQ(ended["name"], "jobs/secret");
  EXPECT_EQ(ended["labels"]["layer"], "hidden<b>");
  EXPECT_EQ(json["devices"][0]["memory"]["used"], 60);
  EXPECT_EQ(json["devices"][0]["lost"], true);
  EXPECT_EQ(json["tensor_memory"]["budget"], 40);
  EXPECT_EQ(json["refusals"][0]["count"], 5);
}

TEST(StatusDocumentTest, NamesAndLabelsOnlyWhereEverybodyIsOneTenant) {
  const std::string text = Document({.show_names = false}).dump();
  EXPECT_THAT(text, AllOf(Not(HasSubstr("secret")), Not(HasSubstr("hidden"))));
  EXPECT_THAT(text, Not(HasSubstr("labels")));
  EXPECT_THAT(text, HasSubstr("\"ended\":[{")) << "without its name";
}

TEST(StatusPageTest, ThePolicyAllowsItsOwnStyleAndScriptAlone) {
  const auto pages = StatusPages({});
  const MetricsEndpoint::Page& page = pages.at("/");
  const std::string html = page.body();
  EXPECT_THAT(page.policy, HasSubstr("default-src 'none'; style-src 'sha256-"));
  EXPECT_THAT(page.policy, HasSubstr("; script-src 'sha256-"));
  EXPECT_THAT(page.policy, Not(HasSubstr("unsafe")));
  // What a policy of hashes would refuse.
  for (const char* refused :
       {" style=\"", "onclick", "innerHTML", "http://", "https://", "eval("}) {
    const size_t at = html.find(refused);
    const bool is_namespace =
        at != std::string::npos && html.substr(at).starts_with("http://www.w3.org/2000/svg");
    EXPECT_TRUE(at == std::string::npos || is_namespace) << refused;
  }
  EXPECT_THAT(html, HasSubstr("</html>")) << "all of it is there";
}

}  // namespace
}  // namespace sparsefw::server
