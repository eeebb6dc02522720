// Enums on the wire and in the durable record are matched by these names, in capitals
// (server/fields): a name that changes here changes there as well.
#include "sparsefw/options.h"
#include "sparsefw/pattern.h"
#include "sparsefw/saliency.h"
#include "sparsefw/solver.h"

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

std::string_view NameOf(SaliencyMethod method) {
  switch (method) {
    case SaliencyMethod::kMagnitude:
      return "magnitude";
    case SaliencyMethod::kWanda:
      return "wanda";
    case SaliencyMethod::kRia:
      return "ria";
  }
  return "other";
}

std::string_view NameOf(StepRule rule) {
  switch (rule) {
    case StepRule::kOpenLoop:
      return "open_loop";
    case StepRule::kLineSearch:
      return "line_search";
    case StepRule::kAuto:
      return "auto";
  }
  return "other";
}

std::string_view NameOf(ProductPrecision precision) {
  switch (precision) {
    case ProductPrecision::kFloat32:
      return "fp32";
    case ProductPrecision::kTf32:
      return "tf32";
    case ProductPrecision::kBf16:
      return "bf16";
  }
  return "other";
}

std::string_view NameOf(Preset preset) {
  switch (preset) {
    case Preset::kPaper:
      return "paper";
    case Preset::kFast:
      return "fast";
    case Preset::kBalanced:
      return "balanced";
    case Preset::kBest:
      return "best";
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
