// Options as fields of messages, found by their names: an option that a message has a field for is
// read and written without code of its own.
#ifndef SPARSEFW_SERVER_FIELDS_OPTION_FIELDS_H_
#define SPARSEFW_SERVER_FIELDS_OPTION_FIELDS_H_

#include <google/protobuf/message.h>

#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "sparsefw/options.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

// InvalidArgument (ENUM_UNKNOWN): no value of this version has that number.
absl::Status UnknownEnum(std::string_view field, int value);

// A field of a message, or of one in it; message is null where there is none.
template <typename Message>
struct FieldPlace {
  Message* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// The field at `path`, as "refine.joint", whether or not it is set.
FieldPlace<const google::protobuf::Message> FieldAt(const google::protobuf::Message& message,
                                                    std::string_view path);
// The same where it is set; the value UNSPECIFIED of an enum counts as not set.
FieldPlace<const google::protobuf::Message> FieldIfSet(const google::protobuf::Message& message,
                                                       std::string_view path);
// The field at `path`, to be set; the messages on the way are made.
FieldPlace<google::protobuf::Message> MutableField(google::protobuf::Message& message,
                                                   std::string_view path);

int64_t IntegerIn(const FieldPlace<const google::protobuf::Message>& place);
void SetInteger(const FieldPlace<google::protobuf::Message>& place, int64_t value);
// An enum by the names of its values: the index of the one that the field has, in `names`. The
// field's values are named as those, in capitals, perhaps with a prefix. Errors: InvalidArgument:
// none of this version (ENUM_UNKNOWN); not in `names` (OPTION_INVALID)
absl::StatusOr<int> ChoiceIn(const FieldPlace<const google::protobuf::Message>& place,
                             std::string_view path, const std::vector<std::string_view>& names);
// A field without such a value is left unset; tests try every value of every option.
void SetChoice(const FieldPlace<google::protobuf::Message>& place, std::string_view name);

// The names of all values of an enum that NameOf knows, in their order.
template <typename Enum>
std::vector<std::string_view> NamesOf() {
  std::vector<std::string_view> names;
  for (int value = 0; NameOf(static_cast<Enum>(value)) != "other"; ++value) {
    names.push_back(NameOf(static_cast<Enum>(value)));
  }
  return names;
}

// Reads the option at `place`, which messages call `path`, into *value. False where there is no
// field. Errors: as ChoiceIn
template <typename Value>
absl::StatusOr<bool> ReadOption(const FieldPlace<const google::protobuf::Message>& place,
                                std::string_view path, Value* value) {
  if (place.message == nullptr) return false;
  if constexpr (std::is_enum_v<Value>) {
    SPARSEFW_ASSIGN_OR_RETURN(const int choice, ChoiceIn(place, path, NamesOf<Value>()));
    *value = static_cast<Value>(choice);
  } else if constexpr (std::is_floating_point_v<Value>) {
    *value = place.message->GetReflection()->GetDouble(*place.message, place.field);
  } else {
    *value = static_cast<Value>(IntegerIn(place));
  }
  return true;
}

// Writes the option to the field at `path`, if there is one.
template <typename Value>
void WriteOption(google::protobuf::Message& message, std::string_view path, Value value) {
  const FieldPlace<google::protobuf::Message> place = MutableField(message, path);
  if (place.message == nullptr) return;
  if constexpr (std::is_enum_v<Value>) {
    SetChoice(place, NameOf(value));
  } else if constexpr (std::is_floating_point_v<Value>) {
    place.message->GetReflection()->SetDouble(place.message, place.field, value);
  } else {
    SetInteger(place, static_cast<int64_t>(value));
  }
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_FIELDS_OPTION_FIELDS_H_
