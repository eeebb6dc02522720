#include "server/fields/option_fields.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

// The field of that name; null where the message has none.
const FieldDescriptor* FieldOf(const Message& message, std::string_view name) {
  return message.GetDescriptor()->FindFieldByName(std::string(name));
}

// "refine.joint" is taken apart: the first name is returned, the rest stays.
std::string_view TakeName(std::string_view& path) {
  const size_t dot = path.find('.');
  const std::string_view name = path.substr(0, dot);
  path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  return name;
}

std::string Capitals(std::string_view name) { return absl::AsciiStrToUpper(std::string(name)); }

// "SPARSEFW" of METHOD_SPARSEFW: without the prefix that the name of value 0 has.
std::string ShortName(const EnumValueDescriptor& value) {
  constexpr std::string_view kUnspecified = "UNSPECIFIED";
  const std::string& zero = value.type()->FindValueByNumber(0)->name();
  const size_t prefix = zero.ends_with(kUnspecified) ? zero.size() - kUnspecified.size() : 0;
  return value.name().substr(prefix);
}

bool IsNamed(const EnumValueDescriptor& value, std::string_view name) {
  const std::string capitals = Capitals(name);
  return ShortName(value) == capitals || value.name().ends_with("_" + capitals);
}

// "MAGNITUDE, WANDA or RIA"
std::string Alternatives(const std::vector<std::string_view>& names) {
  std::vector<std::string> capitals;
  for (const std::string_view name : names) capitals.push_back(Capitals(name));
  const std::string last = capitals.back();
  capitals.pop_back();
  return absl::StrCat(absl::StrJoin(capitals, ", "), " or ", last);
}

}  // namespace

absl::Status UnknownEnum(std::string_view field, int value) {
  return Invalid("ENUM_UNKNOWN", "%s must be one of the values of this version; got %d", field,
                 value);
}

FieldPlace<const Message> FieldAt(const Message& message, std::string_view path) {
  const Message* at = &message;
  while (true) {
    const FieldDescriptor* field = FieldOf(*at, TakeName(path));
    if (field == nullptr || path.empty()) return {field == nullptr ? nullptr : at, field};
    at = &at->GetReflection()->GetMessage(*at, field);
  }
}

FieldPlace<const Message> FieldIfSet(const Message& message, std::string_view path) {
  // A message that is not there has no field that is set.
  const auto place = FieldAt(message, path);
  const auto& [at, field] = place;
  if (at == nullptr || !at->GetReflection()->HasField(*at, field)) return {};
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const int number = at->GetReflection()->GetEnumValue(*at, field);
    const EnumValueDescriptor* value = field->enum_type()->FindValueByNumber(number);
    if (value != nullptr && value->name().ends_with("_UNSPECIFIED")) return {};
  }
  return place;
}

FieldPlace<Message> MutableField(Message& message, std::string_view path) {
  Message* at = &message;
  while (true) {
    const FieldDescriptor* field = FieldOf(*at, TakeName(path));
    if (field == nullptr || path.empty()) return {field == nullptr ? nullptr : at, field};
    at = at->GetReflection()->MutableMessage(at, field);
  }
}

int64_t IntegerIn(const FieldPlace<const Message>& place) {
  const auto& [message, field] = place;
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(*message, field) ? 1 : 0;
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(*message, field);
    default:
      return reflection.GetInt64(*message, field);
  }
}

void SetInteger(const FieldPlace<Message>& place, int64_t value) {
  const auto& [message, field] = place;
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(message, field, value != 0);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(message, field, static_cast<int32_t>(value));
    default:
      return reflection.SetInt64(message, field, value);
  }
}

absl::StatusOr<int> ChoiceIn(const FieldPlace<const Message>& place, std::string_view path,
                             const std::vector<std::string_view>& names) {
  const auto& [message, field] = place;
  const int number = message->GetReflection()->GetEnumValue(*message, field);
  const EnumValueDescriptor* value = field->enum_type()->FindValueByNumber(number);
  if (value == nullptr) {
    return UnknownEnum(path, number);
  }
  const auto found =
      std::ranges::find_if(names, [&](std::string_view name) { return IsNamed(*value, name); });
  if (found == names.end()) {
    return Invalid("OPTION_INVALID", "%s must be %s; got %s", path, Alternatives(names),
                   ShortName(*value));
  }
  return static_cast<int>(found - names.begin());
}

void SetChoice(const FieldPlace<Message>& place, std::string_view name) {
  const auto& [message, field] = place;
  for (int index = 0; index < field->enum_type()->value_count(); ++index) {
    const EnumValueDescriptor& value = *field->enum_type()->value(index);
    if (IsNamed(value, name)) message->GetReflection()->SetEnum(message, field, &value);
  }
}

}  // namespace sparsefw::server
