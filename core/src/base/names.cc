#include "sparsefw/names.h"

namespace sparsefw {

std::string_view NameOf(Method method) {
  switch (method) {
    case Method::kMagnitude:
      return "magnitude";
    case Method::kWanda:
      return "wanda";
    case Method::kRia:
      return "ria";
    case Method::kSparseGpt:
      return "sparsegpt";
    case Method::kSparseFw:
      return "sparsefw";
    case Method::kAlps:
      return "alps";
  }
  return "other";
}

std::string_view NameOf(Pattern::Kind kind) {
  switch (kind) {
    case Pattern::Kind::kUnstructured:
      return "unstructured";
    case Pattern::Kind::kPerRow:
      return "per_row";
    case Pattern::Kind::kKeepOfGroup:
      return "nm";
  }
  return "other";
}

std::string_view NameOf(StopCause cause) {
  switch (cause) {
    case StopCause::kIterations:
      return "ITERATIONS";
    case StopCause::kGap:
      return "GAP";
    case StopCause::kDeadline:
      return "DEADLINE";
    case StopCause::kCancelled:
      return "CANCELLED";
  }
  return "other";
}

}  // namespace sparsefw
