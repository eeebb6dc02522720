// Options and enums in the records of jobs.
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/fields/option_fields.h"
#include "server/jobs/job.h"
#include "server/storage/job_record.h"
#include "sparsefw/options.h"
#include "sparsefw/storage/v1/job_record.pb.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

TEST(JobRecordOptionsTest, KeepsEveryValueOfEveryOption) {
  ForEachOption([&](const OptionInfo& info, auto get) {
    Job job;
    using Value = std::remove_reference_t<decltype(get(job.spec.options))>;
    int count = 2;
    if constexpr (std::is_enum_v<Value>) count = static_cast<int>(NamesOf<Value>().size());
    for (int value = 0; value < count; ++value) {
      get(job.spec.options) = static_cast<Value>(value);
      const absl::StatusOr<Job> read = DecodeJob(EncodeJob(job));
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(get(read->spec.options), static_cast<Value>(value)) << info.name;
    }
  });
}

// The record of a server that did not know an option has no field for it. An option whose default
// is not 0 is `optional` in the record, but for those of the first version.
TEST(JobRecordOptionsTest, AnOptionThatAnOlderServerDidNotKnowHasItsDefault) {
  const std::set<std::string_view> first = {
      "method",           "ria_exponent",      "alpha",           "iterations",    "report_every",
      "keep_fixed",       "sparsegpt_damping", "sparsegpt_block", "joint_damping", "joint_excluded",
      "warm_start_method"};
  ForEachOption([&](const OptionInfo& info, auto get) {
    if (first.contains(info.name)) return;
    storage::v1::JobRecord record;
    ASSERT_TRUE(record.ParseFromString(EncodeJob(Job())));
    auto* options = record.mutable_spec()->mutable_options();
    const auto* field = options->GetDescriptor()->FindFieldByName(std::string(info.name));
    ASSERT_NE(field, nullptr) << info.name;
    options->GetReflection()->ClearField(options, field);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job read, DecodeJob(record.SerializeAsString()));
    const SolveOptions defaults;
    EXPECT_EQ(get(read.spec.options), get(defaults)) << info.name;
  });
}

template <typename Own, typename Kept>
void ExpectSameNumbers(std::initializer_list<std::pair<Own, Kept>> values) {
  for (const auto& [own, kept] : values) EXPECT_EQ(static_cast<int>(own), static_cast<int>(kept));
}

// Those of options are found by name.
TEST(JobRecordEnumsTest, EnumsAreKeptByTheirNumbers) {
  namespace kept = storage::v1;
  ExpectSameNumbers<JobState, kept::JobState>({{JobState::kQueued, kept::QUEUED},
                                               {JobState::kRunning, kept::RUNNING},
                                               {JobState::kSucceeded, kept::SUCCEEDED},
                                               {JobState::kFailed, kept::FAILED},
                                               {JobState::kCancelled, kept::CANCELLED}});
  using Kind = Pattern::Kind;
  ExpectSameNumbers<Kind, kept::PatternKind>({{Kind::kUnstructured, kept::UNSTRUCTURED},
                                              {Kind::kPerRow, kept::PER_ROW},
                                              {Kind::kKeepOfGroup, kept::KEEP_OF_GROUP}});
  ExpectSameNumbers<SweepKeep, kept::SweepKeep>(
      {{SweepKeep::kBest, kept::BEST}, {SweepKeep::kAll, kept::ALL}});
  ExpectSameNumbers<StopCause, kept::StopCause>(
      {{StopCause::kIterations, kept::ITERATIONS},
       {StopCause::kGap, kept::GAP},
       {StopCause::kDeadline, kept::DEADLINE},
       {StopCause::kCancelled, kept::CANCELLED_BY_CALLER}});
  using Candidate = CandidateKind;
  ExpectSameNumbers<Candidate, kept::CandidateKind>({{Candidate::kWarmStart, kept::WARM_START},
                                                     {Candidate::kRounded, kept::ROUNDED},
                                                     {Candidate::kRefined, kept::REFINED},
                                                     {Candidate::kJoint, kept::JOINT}});
}

}  // namespace
}  // namespace sparsefw::server
