#include "server/storage/job_record.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/cord.h"
#include "server/fields/option_fields.h"
#include "sparsefw/options.h"
#include "sparsefw/reason.h"
#include "sparsefw/storage/v1/job_record.pb.h"

namespace sparsefw::server {
namespace {

namespace records = ::sparsefw::storage::v1;

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// absl's own resolution.
const absl::Duration kTick = absl::Nanoseconds(1) / 4;

records::Duration ToRecord(absl::Duration duration) {
  records::Duration record;
  if (duration == absl::InfiniteDuration()) {
    record.set_infinite(records::Duration::FUTURE);
    return record;
  }
  if (duration == -absl::InfiniteDuration()) {
    record.set_infinite(records::Duration::PAST);
    return record;
  }
  const absl::Duration seconds = absl::Floor(duration, absl::Seconds(1));
  record.set_seconds(absl::ToInt64Seconds(seconds));
  record.set_quarter_nanoseconds(static_cast<uint32_t>((duration - seconds) / kTick));
  return record;
}

records::Duration ToRecord(absl::Time time) { return ToRecord(time - absl::UnixEpoch()); }

absl::Duration DurationOf(const records::Duration& record) {
  switch (record.infinite()) {
    case records::Duration::FUTURE:
      return absl::InfiniteDuration();
    case records::Duration::PAST:
      return -absl::InfiniteDuration();
    default:
      return absl::Seconds(record.seconds()) + record.quarter_nanoseconds() * kTick;
  }
}

absl::Time TimeOf(const records::Duration& record) {
  return absl::UnixEpoch() + DurationOf(record);
}

records::Status ToRecord(const absl::Status& status) {
  records::Status record;
  record.set_code(status.raw_code());
  record.set_message(std::string(status.message()));
  status.ForEachPayload([&record](absl::string_view url, const absl::Cord& value) {
    records::Status::Payload& payload = *record.add_payloads();
    payload.set_url(std::string(url));
    payload.set_value(std::string(value));
  });
  return record;
}

absl::Status StatusOf(const records::Status& record) {
  absl::Status status(static_cast<absl::StatusCode>(record.code()), record.message());
  for (const records::Status::Payload& payload : record.payloads()) {
    status.SetPayload(payload.url(), absl::Cord(payload.value()));
  }
  return status;
}

template <typename Value, typename Struct>
concept Is = std::is_same_v<std::remove_const_t<Value>, Struct>;

// Calls code(name, member) for every member; `names` as "kind, sparsity".
template <typename Code, typename... Members>
void ForEach(Code& code, std::string_view names, Members&... members) {
  const auto next = [&](auto& member) {
    const size_t end = std::min(names.find(','), names.size());
    code(names.substr(0, end), member);
    names.remove_prefix(std::min(end + 2, names.size()));
  };
  (next(members), ...);
}

// All members of `value`, in order and by the names of the record's fields. A new member does not
// compile until it is named here. A name without a field in the record is not kept.
#define SPARSEFW_RECORD(...)   \
  auto& [__VA_ARGS__] = value; \
  ForEach(code, #__VA_ARGS__, __VA_ARGS__)

struct Members {
  static void Of(Is<Pattern> auto& value, auto& code) {
    SPARSEFW_RECORD(kind, sparsity, keep, group);
  }
  static void Of(Is<SweepPoint> auto& value, auto& code) { SPARSEFW_RECORD(pattern, options); }
  static void Of(Is<JobSpec> auto& value, auto& code) {
    SPARSEFW_RECORD(weight, gram, warm_mask, warm_saliency, pattern, options, priority, deadline,
                    result_ttl, labels, device, return_pruned_weight, sweep, sweep_keep,
                    ends_with_stream, shrinks_by_tokens, preset, preset_overrides, traceparent);
  }
  static void Of(Is<ProgressReport> auto& value, auto& code) {
    SPARSEFW_RECORD(iteration, iterations_total, relaxed_loss, gap, step_size, threshold_residual,
                    rounded_loss, best_loss, warm_start_loss, lower_bound, swaps, sweep_point,
                    elapsed);
  }
  static void Of(Is<JobProgress> auto& value, auto& code) { SPARSEFW_RECORD(progress, revision); }
  static void Of(Is<JointSummary> auto& value, auto& code) {
    SPARSEFW_RECORD(searched, start_loss, reduction, exchanges, converged);
  }
  static void Of(Is<UnshrunkLosses> auto& value, auto& code) {
    SPARSEFW_RECORD(full, warm_start, result);
  }
  static void Of(Is<ScreeningCounts> auto& value, auto& code) {
    SPARSEFW_RECORD(screened_epochs, screened_iterations, screened_active_share);
  }
  static void Of(Is<SolveSummary> auto& value, auto& code) {
    SPARSEFW_RECORD(kept_count, full_loss, warm_start_loss, relaxed_loss, rounded_loss, final_loss,
                    reconstructed_loss, unshrunk, damping, joint, new_weights_loss, lower_bound,
                    relative_reduction, iterations, swaps, drift, stop_cause, candidate, load_time,
                    solve_time, screening);
    Of(screening, code);
  }
  static void Of(Is<SweepOutcome> auto& value, auto& code) { SPARSEFW_RECORD(error, result); }
  static void Of(Is<JobResult> auto& value, auto& code) {
    SPARSEFW_RECORD(mask, pruned_weight, solve, weights_updated, device, queue_time, sweep,
                    best_point, incomplete);
  }
  static void Of(Is<StateChange> auto& value, auto& code) { SPARSEFW_RECORD(state, revision); }
  static void Of(Is<RunMark> auto& value, auto& code) { SPARSEFW_RECORD(part, iteration); }
  static void Of(Is<Owner> auto& value, auto& code) { SPARSEFW_RECORD(tenant, owner); }
  static void Of(Is<Job> auto& value, auto& code) {
    SPARSEFW_RECORD(name, spec, state, progress, result, error, revision, state_revision, states,
                    create_time, deadline, start_time, end_time, expire_time, queue_position, whose,
                    rows, cols, attempts, vain_attempts, reported, saved, alone, cancel_requested,
                    request_id);
    Of(whose, code);
  }
};

// The option's field. None where the record is of a server that did not know the option, which
// then has its default; only fields with presence tell that.
FieldPlace<const Message> Written(const Message& options, std::string_view name) {
  const FieldPlace<const Message> place = FieldAt(options, name);
  const bool written = place.message == nullptr || !place.field->has_presence() ||
                       place.message->GetReflection()->HasField(*place.message, place.field);
  return written ? place : FieldPlace<const Message>();
}

class Encoder {
 public:
  explicit Encoder(Message& to) : to_(to), record_(*to.GetReflection()) {}

  template <typename Value>
  void operator()(std::string_view name, const Value& value) {
    const FieldDescriptor* field = to_.GetDescriptor()->FindFieldByName(std::string(name));
    if (field != nullptr) Set(field, value);
  }

 private:
  using Field = const FieldDescriptor*;

  template <typename Record>
  Record& Part(Field field) {
    return static_cast<Record&>(*record_.MutableMessage(&to_, field));
  }
  static void Encode(const auto& value, Message& to) {
    Encoder code(to);
    Members::Of(value, code);
  }
  // Every option has a field of its name.
  static void Encode(const SolveOptions& options, Message& to) {
    ForEachOption(
        [&](const OptionInfo& info, auto get) { WriteOption(to, info.name, get(options)); });
    Encoder code(to);
    code("deadline", options.deadline);
  }

  void Set(Field field, bool value) { record_.SetBool(&to_, field, value); }
  void Set(Field field, int32_t value) { record_.SetInt32(&to_, field, value); }
  void Set(Field field, int64_t value) { record_.SetInt64(&to_, field, value); }
  void Set(Field field, double value) { record_.SetDouble(&to_, field, value); }
  void Set(Field field, const std::string& value) { record_.SetString(&to_, field, value); }
  void Set(Field field, absl::Duration value) { Part<records::Duration>(field) = ToRecord(value); }
  void Set(Field field, absl::Time value) { Part<records::Duration>(field) = ToRecord(value); }
  void Set(Field field, const absl::Status& value) {
    Part<records::Status>(field) = ToRecord(value);
  }
  void Set(Field field, const JointSummary& value) {
    if (value.searched) Encode(value, Part<Message>(field));
  }
  void Set(Field field, const std::map<std::string, std::string>& labels) {
    for (const auto& [key, value] : labels) {
      Encoder label(*record_.AddMessage(&to_, field));
      label("key", key);
      label("value", value);
    }
  }
  void Set(Field field, const std::vector<std::string>& values) {
    for (const std::string& value : values) record_.AddString(&to_, field, value);
  }
  template <typename Value>
  void Set(Field field, const std::optional<Value>& value) {
    if (value.has_value()) Set(field, *value);
  }
  template <typename Value>
  void Set(Field field, const std::vector<Value>& values) {
    for (const Value& value : values) Encode(value, *record_.AddMessage(&to_, field));
  }
  template <typename Value>
  void Set(Field field, const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      record_.SetEnumValue(&to_, field, static_cast<int>(value));
    } else {
      Encode(value, Part<Message>(field));
    }
  }

  Message& to_;
  const Reflection& record_;
};

class Decoder {
 public:
  // `known` turns false where this version does not know an option's value: no option may turn
  // into its default, since the job would be another one.
  Decoder(const Message& from, bool* known)
      : from_(from), known_(*known), record_(*from.GetReflection()) {}

  template <typename Value>
  void operator()(std::string_view name, Value& value) {
    const FieldDescriptor* field = from_.GetDescriptor()->FindFieldByName(std::string(name));
    if (field != nullptr) Get(field, value);
  }

 private:
  using Field = const FieldDescriptor*;

  template <typename Record>
  const Record& Part(Field field) {
    return static_cast<const Record&>(record_.GetMessage(from_, field));
  }
  void Decode(const Message& from, auto& value) {
    Decoder code(from, &known_);
    Members::Of(value, code);
  }
  void Decode(const Message& from, SolveOptions& options) {
    ForEachOption([&](const OptionInfo& info, auto get) {
      known_ = ReadOption(Written(from, info.name), info.name, &get(options)).ok() && known_;
    });
    Decoder code(from, &known_);
    code("deadline", options.deadline);
  }

  void Get(Field field, bool& value) { value = record_.GetBool(from_, field); }
  void Get(Field field, int32_t& value) { value = record_.GetInt32(from_, field); }
  void Get(Field field, int64_t& value) { value = record_.GetInt64(from_, field); }
  void Get(Field field, double& value) { value = record_.GetDouble(from_, field); }
  void Get(Field field, std::string& value) { value = record_.GetString(from_, field); }
  void Get(Field field, absl::Duration& value) {
    value = DurationOf(Part<records::Duration>(field));
  }
  void Get(Field field, absl::Time& value) { value = TimeOf(Part<records::Duration>(field)); }
  void Get(Field field, absl::Status& value) { value = StatusOf(Part<records::Status>(field)); }
  void Get(Field field, std::map<std::string, std::string>& labels) {
    for (int i = 0; i < record_.FieldSize(from_, field); ++i) {
      std::string key;
      Decoder label(record_.GetRepeatedMessage(from_, field, i), &known_);
      label("key", key);
      label("value", labels[key]);
    }
  }
  void Get(Field field, std::vector<std::string>& values) {
    for (int i = 0; i < record_.FieldSize(from_, field); ++i) {
      values.push_back(record_.GetRepeatedString(from_, field, i));
    }
  }
  template <typename Value>
  void Get(Field field, std::optional<Value>& value) {
    if (record_.HasField(from_, field)) Get(field, value.emplace());
  }
  template <typename Value>
  void Get(Field field, std::vector<Value>& values) {
    for (int i = 0; i < record_.FieldSize(from_, field); ++i) {
      Decode(record_.GetRepeatedMessage(from_, field, i), values.emplace_back());
    }
  }
  template <typename Value>
  void Get(Field field, Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      value = static_cast<Value>(record_.GetEnumValue(from_, field));
    } else {
      Decode(Part<Message>(field), value);
    }
  }

  const Message& from_;
  bool& known_;
  const Reflection& record_;
};

template <typename Record>
std::string Bytes(const auto& value) {
  Record record;
  Encoder code(record);
  Members::Of(value, code);
  return record.SerializeAsString();
}

absl::Status Damaged(std::string_view bytes) {
  return Refuse(absl::StatusCode::kInternal, "STORE_FAILED",
                "the job store holds a record of %d bytes that is damaged", bytes.size());
}

template <typename Record>
absl::Status Parse(std::string_view bytes, Record* record) {
  if (record->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return Damaged(bytes);
}

// Readers take the point of an outcome from the spec without asking.
bool MakesSense(const Job& job) {
  return !job.result.has_value() || job.result->sweep.size() <= job.spec.sweep.size();
}

}  // namespace

std::string EncodeJob(const Job& job) { return Bytes<records::JobRecord>(job); }

absl::StatusOr<Job> DecodeJob(std::string_view bytes) {
  records::JobRecord record;
  if (absl::Status status = Parse(bytes, &record); !status.ok()) return status;
  Job job;
  bool known = true;
  Decoder code(record, &known);
  Members::Of(job, code);
  if (!known || !MakesSense(job)) return Damaged(bytes);
  return job;
}

std::string EncodeProgress(const JobProgress& progress) {
  return Bytes<records::ProgressRecord>(progress);
}

absl::Status DecodeProgress(std::string_view bytes, Job* job) {
  records::ProgressRecord record;
  if (absl::Status status = Parse(bytes, &record); !status.ok()) return status;
  job->progress.reset();
  bool known = true;
  Decoder code(record, &known);
  code("revision", job->revision);
  code("progress", job->progress);
  return absl::OkStatus();
}

}  // namespace sparsefw::server
