// Fields of messages by their names, set from what the command line says.
#ifndef SPARSEFW_CLIENT_CLI_FIELD_TEXT_H_
#define SPARSEFW_CLIENT_CLI_FIELD_TEXT_H_

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparsefw::cli {

// The descriptor of the field at `path`, such as "refine.joint"; null where there is none.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor& message,
                                                   std::string_view path);

// Sets the field at `path` to the value that `text` says: a number, "on" or "off", the word of an
// enum's value, text. The server checks ranges. Errors: exit code 2; the message begins with `flag`
absl::Status SetField(google::protobuf::Message& message, std::string_view path,
                      std::string_view flag, const std::string& text);

// The number of the value whose word is `text`. Errors: as SetField
absl::StatusOr<int> ParseEnum(const google::protobuf::EnumDescriptor& type, std::string_view flag,
                              const std::string& text);

// The words of an enum's values, "open-loop|line-search": short names in lower case, with hyphens.
// Number 0 is no choice.
std::string EnumWords(const google::protobuf::EnumDescriptor& type);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FIELD_TEXT_H_
