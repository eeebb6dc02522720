#include "server/identity/tenants.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::StatusIs;

TenantTable MustParse(const std::string& text) {
  auto table = TenantTable::Parse(text, "tenants");
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *std::move(table) : TenantTable();
}

TEST(TenantsTest, EveryKey) {
  const TenantTable table = MustParse(
      "# who may\n[alice]\r\nmax-queued-jobs = 10\n max-running-jobs=2\nmax-tensor-bytes = 1 GiB\n"
      "max-tensors = 20\nmax-uploads = 0\nmax-job-bytes = 5MiB\nweight = 2.5\npriority-max = -5\n"
      "\n[bob]\n");
  ASSERT_EQ(table.size(), 2U);
  const TenantLimits expected = {.max_queued_jobs = 10,
                                 .max_running_jobs = 2,
                                 .max_tensor_bytes = int64_t{1} << 30,
                                 .max_tensors = 20,
                                 .max_uploads = 0,
                                 .max_job_bytes = int64_t{5} << 20,
                                 .weight = 2.5,
                                 .priority_max = -5};
  ASSERT_NE(table.Find("alice"), nullptr);
  EXPECT_EQ(*table.Find("alice"), expected);
  ASSERT_NE(table.Find("bob"), nullptr);
  EXPECT_EQ(*table.Find("bob"), TenantLimits());
  EXPECT_EQ(TenantLimits().priority_max, 100);
  EXPECT_EQ(table.Find("eve"), nullptr) << "only the tenants of the file";
}

TEST(TenantsTest, TheStarIsForAllOthersAndFillsWhatIsLeftOut) {
  // Also where it comes last.
  const TenantTable table =
      MustParse("[alice]\nweight = 3\n[*]\nmax-queued-jobs = 7\nweight = 2\n");
  EXPECT_EQ(table.size(), 1U);
  ASSERT_NE(table.Find("eve"), nullptr);
  EXPECT_EQ(table.Find("eve")->max_queued_jobs, 7);
  EXPECT_EQ(table.Find("eve")->weight, 2);
  EXPECT_EQ(table.Find("alice")->max_queued_jobs, 7);
  EXPECT_EQ(table.Find("alice")->weight, 3);
}

TEST(TenantsTest, AnEmptyFileAllowsNobody) { EXPECT_EQ(MustParse("").Find("default"), nullptr); }

TEST(TenantsTest, BadLinesNameFileLineAndRule) {
  const auto bad = [](const std::string& text, const std::string& line, const std::string& words) {
    EXPECT_THAT(TenantTable::Parse(text, "etc/tenants"),
                StatusIs(absl::StatusCode::kInvalidArgument, "CONFIGURATION_INVALID",
                         "etc/tenants:" + line + ": ", words))
        << text;
  };
  bad("weight = 1", "1", "must stand in a section");
  bad("[alice", "1", "[tenant]");
  bad("[]", "1", "name of a tenant");
  bad("[a b]", "1", "name of a tenant");
  bad("[alice]\n[bob]\n[alice]", "3", "line 1 has it too");
  bad("[*]\n[*]", "2", "line 1 has it too");
  bad("[alice]\nweight", "2", "key = value");
  bad("[alice]\nweights = 1", "2", "there is no key \"weights\"");
  bad("[alice]\n = 1", "2", "there is no key \"\"");
  bad("[alice]\nweight = 1\nweight = 1", "3", "line 2 has it too");
  for (const char* value : {"", "x", "0", "-1", "nan", "inf", "1e9", "1 2"}) {
    bad(std::string("[alice]\nweight = ") + value, "2", "weight must be a number in");
  }
  for (const char* value : {"", "-1", "1.5", "x", "99999999999999999999"}) {
    bad(std::string("[alice]\nmax-queued-jobs = ") + value, "2", "at least 0");
    bad(std::string("[alice]\nmax-running-jobs = ") + value, "2", "at least 0");
    bad(std::string("[alice]\nmax-tensors = ") + value, "2", "at least 0");
    bad(std::string("[alice]\nmax-uploads = ") + value, "2", "at least 0");
  }
  for (const char* value : {"", "-1", "1.5GiB", "much", "99999999TiB"}) {
    bad(std::string("[alice]\nmax-tensor-bytes = ") + value, "2", "must be a size");
  }
  for (const char* value : {"", "101", "-101", "1.5", "high"}) {
    bad(std::string("[alice]\npriority-max = ") + value, "2", "in [-100, 100]");
  }
  // In a section that comes before the one whose keys it fills.
  bad("[alice]\nweight = x\n[*]\nweight = y", "4", "weight must be");
}

}  // namespace
}  // namespace sparsefw::server
