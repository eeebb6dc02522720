#include "client/cpp/cli/flags/field_text.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/names.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

std::vector<std::string> WordsOf(const EnumDescriptor& type) {
  std::vector<std::string> words;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) words.push_back(EnumWord(*type.value(i)));
  }
  return words;
}

absl::Status SetBool(Message& message, const FieldDescriptor& field, std::string_view flag,
                     const std::string& text) {
  if (text != "on" && text != "off") {
    return UsageError(absl::StrFormat("%s must be on or off; got \"%s\"", flag, text));
  }
  message.GetReflection()->SetBool(&message, &field, text == "on");
  return absl::OkStatus();
}

// False: `text` is no such number.
bool SetNumber(Message& message, const FieldDescriptor& field, const std::string& text) {
  const Reflection& reflection = *message.GetReflection();
  double number = 0;
  int32_t small = 0;
  int64_t large = 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!absl::SimpleAtod(text, &number)) return false;
      reflection.SetDouble(&message, &field, number);
      return true;
    case FieldDescriptor::CPPTYPE_INT32:
      if (!absl::SimpleAtoi(text, &small)) return false;
      reflection.SetInt32(&message, &field, small);
      return true;
    case FieldDescriptor::CPPTYPE_INT64:
      if (!absl::SimpleAtoi(text, &large)) return false;
      reflection.SetInt64(&message, &field, large);
      return true;
    default:
      return false;
  }
}

}  // namespace

const FieldDescriptor* FindField(const Descriptor& message, std::string_view path) {
  const Descriptor* at = &message;
  const FieldDescriptor* field = nullptr;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(std::string(path), '.'))) {
    field = at == nullptr ? nullptr : at->FindFieldByName(name);
    if (field == nullptr) return nullptr;
    at = field->message_type();
  }
  return field;
}

absl::Status SetField(Message& message, std::string_view path, std::string_view flag,
                      const std::string& text) {
  Message* at = &message;
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    const FieldDescriptor* part =
        at->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
    at = at->GetReflection()->MutableMessage(at, part);
    path.remove_prefix(dot + 1);
  }
  const FieldDescriptor& field = *at->GetDescriptor()->FindFieldByName(std::string(path));
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM: {
      SPARSEFW_ASSIGN_OR_RETURN(const int number, ParseEnum(*field.enum_type(), flag, text));
      at->GetReflection()->SetEnumValue(at, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return SetBool(*at, field, flag, text);
    case FieldDescriptor::CPPTYPE_STRING:
      at->GetReflection()->SetString(at, &field, text);
      return absl::OkStatus();
    default:
      if (SetNumber(*at, field, text)) return absl::OkStatus();
      return UsageError(absl::StrFormat(
          "%s must be a %snumber; got \"%s\"", flag,
          field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? "" : "whole ", text));
  }
}

absl::StatusOr<int> ParseEnum(const EnumDescriptor& type, std::string_view flag,
                              const std::string& text) {
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    if (value.number() != 0 && EnumWord(value) == text) return value.number();
  }
  return UsageError(absl::StrFormat("%s must be one of %s; got \"%s\"", flag,
                                    absl::StrJoin(WordsOf(type), ", "), text));
}

std::string EnumWords(const EnumDescriptor& type) { return absl::StrJoin(WordsOf(type), "|"); }

}  // namespace sparsefw::cli
