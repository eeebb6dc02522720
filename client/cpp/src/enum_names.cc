#include "sparsefw/client/enum_names.h"

#include <string_view>

namespace sparsefw::client {

std::string ShortName(const google::protobuf::EnumValueDescriptor& value) {
  constexpr std::string_view kUnspecified = "UNSPECIFIED";
  const std::string& zero = value.type()->FindValueByNumber(0)->name();
  return value.name().substr(zero.size() - kUnspecified.size());
}

}  // namespace sparsefw::client
