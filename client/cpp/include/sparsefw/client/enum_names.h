// Enum values in words: the names of sparsefw.v1 without their prefix.
#ifndef SPARSEFW_CLIENT_ENUM_NAMES_H_
#define SPARSEFW_CLIENT_ENUM_NAMES_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>

#include <string>

namespace sparsefw::client {

// "SUCCEEDED" for JOB_STATE_SUCCEEDED. The enum's value 0 is named <prefix>UNSPECIFIED.
std::string ShortName(const google::protobuf::EnumValueDescriptor& value);

// The same by value; the number in digits where this version does not know it.
template <typename Enum>
std::string ShortName(Enum value) {
  const auto* found =
      google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(static_cast<int>(value));
  return found == nullptr ? std::to_string(static_cast<int>(value)) : ShortName(*found);
}

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_ENUM_NAMES_H_
