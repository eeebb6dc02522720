#include "server/rpc/convert/convert.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "server/fields/option_fields.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/options.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

void ExpectInvalid(const absl::Status& status, const std::string& reason,
                   const std::string& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(ReasonOf(status), reason);
  EXPECT_NE(std::string(status.message()).find(words), std::string::npos) << status;
}

v1::TensorSpec Weight() {
  v1::TensorSpec spec;
  spec.set_kind(v1::TENSOR_KIND_WEIGHT);
  spec.set_dtype(v1::DATA_TYPE_BF16);
  spec.add_dims(int64_t{1} << 40);
  spec.add_dims(3);
  return spec;
}

TEST(ConvertJobTest, WhatIsSetBesideAPresetIsNamed) {
  v1::JobSpec proto;
  proto.mutable_pattern()->mutable_nm()->set_keep(2);
  proto.mutable_pattern()->mutable_nm()->set_group(4);
  proto.set_preset(v1::PRESET_FAST);
  EXPECT_TRUE(FromProto(proto)->preset_overrides.empty());
  proto.set_method(v1::METHOD_SPARSEGPT);
  proto.mutable_warm_start()->set_method(v1::METHOD_RIA);
  proto.mutable_sparsefw()->set_alpha(0.5);
  proto.set_product_precision(v1::PRODUCT_PRECISION_FP32);  // no option of a method
  Job job;
  job.spec = *FromProto(proto);
  const auto names = ToProto(job).preset_overrides();
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.end()),
            (std::vector<std::string>{"alpha", "method", "warm_start_method"}));
  proto.clear_preset();
  EXPECT_TRUE(FromProto(proto)->preset_overrides.empty()) << "nothing gave way";
}

TEST(ConvertTensorTest, KeepsSizesBeyond32Bits) {
  const absl::StatusOr<TensorSpec> spec = FromProto(Weight());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->kind, TensorKind::kWeight);
  EXPECT_EQ(spec->dtype, DType::kBF16);
  EXPECT_EQ(spec->rows, int64_t{1} << 40);
  EXPECT_EQ(spec->cols, 3);
  EXPECT_EQ(ToProto(*spec).SerializeAsString(), Weight().SerializeAsString());
}

// Each would be compared with every tensor, under the lock of the store.
TEST(ConvertTensorTest, AListHasEachKindOnceHoweverOftenItIsNamed) {
  v1::ListTensorsRequest request;
  for (int i = 0; i < 100'000; ++i) {
    request.add_kinds(static_cast<v1::TensorKind>(v1::TENSOR_KIND_WEIGHT + i % 5));
  }
  request.set_owner("alice");
  const absl::StatusOr<TensorFilter> filter = FilterFromProto(request);
  ASSERT_TRUE(filter.ok()) << filter.status();
  EXPECT_EQ(filter->kinds,
            (std::vector{TensorKind::kWeight, TensorKind::kGram, TensorKind::kSaliency,
                         TensorKind::kMask, TensorKind::kPrunedWeight}));
  EXPECT_EQ(filter->owner, "alice");
  request.add_kinds(v1::TENSOR_KIND_UNSPECIFIED);
  ExpectInvalid(FilterFromProto(request).status(), "SPEC_INVALID", "kinds");
}

TEST(ConvertTensorTest, NamesWhatIsWrong) {
  v1::TensorSpec spec = Weight();
  spec.set_kind(v1::TENSOR_KIND_UNSPECIFIED);
  ExpectInvalid(FromProto(spec).status(), "SPEC_INVALID", "kind must be set");
  spec.set_kind(static_cast<v1::TensorKind>(77));
  ExpectInvalid(FromProto(spec).status(), "ENUM_UNKNOWN", "kind must be one of");
  spec.set_kind(v1::TENSOR_KIND_PRUNED_WEIGHT);
  EXPECT_EQ(FromProto(spec)->kind, TensorKind::kPrunedWeight) << "an upload of it is refused later";
  spec = Weight();
  spec.set_dtype(static_cast<v1::DataType>(9));
  ExpectInvalid(FromProto(spec).status(), "ENUM_UNKNOWN",
                "dtype must be one of the values of this version; got 9");
  spec.set_dtype(v1::DATA_TYPE_UNSPECIFIED);
  ExpectInvalid(FromProto(spec).status(), "SPEC_INVALID", "dtype must be set");
  spec = Weight();
  spec.add_dims(1);
  ExpectInvalid(FromProto(spec).status(), "SPEC_INVALID", "dims must be two numbers; got 3");
  spec = Weight();
  spec.set_token_count(-1);
  ExpectInvalid(FromProto(spec).status(), "SPEC_INVALID", "token_count");
}

TEST(ConvertTensorTest, GramDTypeDefaultsToF32AndActivationsHaveNoDefault) {
  v1::GramSpec proto;
  proto.set_d_in(5);
  ExpectInvalid(FromProto(proto).status(), "SPEC_INVALID", "activation_dtype must be set");
  proto.set_activation_dtype(v1::DATA_TYPE_F16);
  const absl::StatusOr<GramSpec> spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->gram_dtype, DType::kF32);
  EXPECT_EQ(spec->activation_dtype, DType::kF16);
  EXPECT_EQ(spec->d_in, 5);
}

TEST(ConvertJobTest, AJobShowsTimesOnlyOnceTheyAreKnown) {
  Job job;
  job.name = "jobs/1";
  job.create_time = absl::FromUnixMillis(1500);
  v1::Job proto = ToProto(job);
  EXPECT_EQ(proto.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(proto.create_time().seconds(), 1);
  EXPECT_EQ(proto.create_time().nanos(), 500'000'000);
  EXPECT_FALSE(proto.has_start_time());
  EXPECT_FALSE(proto.has_end_time());
  EXPECT_FALSE(proto.has_expire_time());
  EXPECT_FALSE(proto.has_result());
  EXPECT_FALSE(proto.has_error());

  job.state = JobState::kFailed;
  job.error = WithReason(absl::ResourceExhaustedError("no memory"), "HOST_MEMORY");
  job.end_time = absl::FromUnixSeconds(9);
  job.progress =
      ProgressReport{.iteration = 25, .iterations_total = 100, .elapsed = absl::Seconds(1)};
  proto = ToProto(job);
  EXPECT_EQ(proto.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(proto.error().message(), "no memory");
  EXPECT_EQ(proto.error().code(), 8);
  EXPECT_EQ(proto.end_time().seconds(), 9);
  EXPECT_EQ(proto.progress().remaining_estimate().seconds(), 3);
}

std::string Upper(std::string_view name) {
  std::string upper(name);
  absl::AsciiStrToUpper(&upper);
  return upper;
}

template <typename Wire, typename Own>
std::string NameOnWire(Own value) {
  const google::protobuf::EnumDescriptor& wire = *google::protobuf::GetEnumDescriptor<Wire>();
  return wire.FindValueByNumber(OnWire<Wire>(value))->name();
}

// Metrics and logs must speak of methods and states as the wire does.
TEST(NamesTest, AgreeWithTheWire) {
  for (const Method method : {Method::kMagnitude, Method::kWanda, Method::kRia, Method::kSparseGpt,
                              Method::kSparseFw, Method::kAlps}) {
    SweepPoint point;
    point.options.method = method;
    EXPECT_EQ("METHOD_" + Upper(NameOf(method)), v1::Method_Name(ToProto(point).method()));
  }
  for (const JobState state : {JobState::kQueued, JobState::kRunning, JobState::kSucceeded,
                               JobState::kFailed, JobState::kCancelled}) {
    EXPECT_EQ("JOB_STATE_" + Upper(NameOf(state)), NameOnWire<v1::JobState>(state));
  }
  for (const TensorKind kind : {TensorKind::kWeight, TensorKind::kGram, TensorKind::kSaliency,
                                TensorKind::kMask, TensorKind::kPrunedWeight}) {
    EXPECT_EQ("TENSOR_KIND_" + Upper(NameOf(kind)), NameOnWire<v1::TensorKind>(kind));
  }
  for (const StopCause cause :
       {StopCause::kIterations, StopCause::kGap, StopCause::kDeadline, StopCause::kCancelled}) {
    EXPECT_EQ("STOP_REASON_" + Upper(NameOf(cause)), NameOnWire<v1::StopReason>(cause));
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    EXPECT_EQ("DATA_TYPE_" + Upper(DTypeName(dtype)), NameOnWire<v1::DataType>(dtype));
  }
}

// Enums that have other names there, or none here.
TEST(NamesTest, NumbersAgreeWithTheWire) {
  EXPECT_EQ(OnWire<v1::DataType>(DType::kBool), v1::DATA_TYPE_U1);
  EXPECT_EQ(OnWire<v1::Candidate>(CandidateKind::kWarmStart), v1::CANDIDATE_WARM_START);
  EXPECT_EQ(OnWire<v1::Candidate>(CandidateKind::kRounded), v1::CANDIDATE_ROUNDED);
  EXPECT_EQ(OnWire<v1::Candidate>(CandidateKind::kRefined), v1::CANDIDATE_REFINED);
  EXPECT_EQ(OnWire<v1::Candidate>(CandidateKind::kJoint), v1::CANDIDATE_JOINT);
  using Kind = JobEvent::Kind;
  EXPECT_EQ(OnWire<v1::JobEvent::Kind>(Kind::kSnapshot), v1::JobEvent::KIND_SNAPSHOT);
  EXPECT_EQ(OnWire<v1::JobEvent::Kind>(Kind::kStateChange), v1::JobEvent::KIND_STATE_CHANGE);
  EXPECT_EQ(OnWire<v1::JobEvent::Kind>(Kind::kProgress), v1::JobEvent::KIND_PROGRESS);
}

TEST(ConvertCommonTest, PageSizesHaveADefaultAndALimit) {
  EXPECT_EQ(*PageSize(0), 100);
  EXPECT_EQ(*PageSize(7), 7);
  EXPECT_EQ(*PageSize(5000), 1000);
  ExpectInvalid(PageSize(-1).status(), "PAGE_SIZE_INVALID", "page_size must be at least 0; got -1");
}

TEST(ConvertCommonTest, InfiniteDurationsStayInRange) {
  EXPECT_EQ(ToProto(absl::InfiniteDuration()).seconds(), 315'576'000'000);
  EXPECT_EQ(ToProto(absl::Milliseconds(-1500)).nanos(), -500'000'000);
}

TEST(ConvertCommonTest, UnknownStatesInAFilterAreNamed) {
  v1::ListJobsRequest request;
  request.add_states(static_cast<v1::JobState>(66));
  ExpectInvalid(FilterFromProto(request).status(), "ENUM_UNKNOWN", "states must be one of");
}

TEST(ConvertCommonTest, AFilterIsAsLongAsItNeedsToBe) {
  v1::ListJobsRequest request;
  for (int i = 0; i < 300'000; ++i)
    request.add_states(i % 2 == 0 ? v1::JOB_STATE_QUEUED : v1::JOB_STATE_FAILED);
  for (int i = 0; i < 64; ++i) (*request.mutable_labels())[absl::StrFormat("%d", i)] = "x";
  const auto filter = FilterFromProto(request);
  ASSERT_TRUE(filter.ok()) << filter.status();
  EXPECT_EQ(filter->states, (std::vector<JobState>{JobState::kQueued, JobState::kFailed}));
  EXPECT_EQ(filter->labels.size(), 64U);
  (*request.mutable_labels())["one more"] = "x";
  ExpectInvalid(FilterFromProto(request).status(), "LABELS_INVALID", "at most 64; got 65");
}

TEST(FingerprintTest, HasTheSameSizeWhateverTheRequestHolds) {
  v1::CreateJobRequest request;
  EXPECT_EQ(JobDigestOf("CreateJob", request).now.size(), 32U);
  const std::string known = JobDigestOf("CreateJob", request).now;
  auto* unknown = request.GetReflection()->MutableUnknownFields(&request);
  unknown->AddLengthDelimited(1000, std::string(2 << 20, 'x'));
  const std::string with_more = JobDigestOf("CreateJob", request).now;
  EXPECT_EQ(with_more.size(), 32U);
  EXPECT_NE(with_more, known) << "of a newer client, which means something by it";
}

TEST(FingerprintTest, IgnoresTheRequestIdAndTheOrderOfLabels) {
  v1::CreateJobRequest a;
  v1::CreateJobRequest b;
  for (int i = 0; i < 40; ++i)
    (*a.mutable_spec()->mutable_labels())[absl::StrFormat("%d", i)].push_back('x');
  for (int i = 39; i >= 0; --i)
    (*b.mutable_spec()->mutable_labels())[absl::StrFormat("%d", i)].push_back('x');
  a.set_request_id("one");
  b.set_request_id("two");
  EXPECT_EQ(JobDigestOf("CreateJob", a).now, JobDigestOf("CreateJob", b).now);
  b.mutable_spec()->set_priority(1);
  EXPECT_NE(JobDigestOf("CreateJob", a).now, JobDigestOf("CreateJob", b).now);
}

TEST(FingerprintTest, TellsCallsApartWhichEarlierBuildsDidNot) {
  const RequestDigest created = JobDigestOf("CreateJob", v1::CreateJobRequest());
  const RequestDigest pruned = JobDigestOf("Prune", v1::PruneHeader());
  EXPECT_NE(created.now, pruned.now);
  EXPECT_EQ(created.before, pruned.before);
}

}  // namespace
}  // namespace sparsefw::server
