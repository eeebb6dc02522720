// Enums on the wire and in the durable record are matched by these names, in capitals
// (server/fields): a name that changes here changes there as well.
#include "sparsefw/options.h"
#include "sparsefw/pattern.h"
#include "sparsefw/saliency.h"
#include "sparsefw/solver.h"

namespace sparsefw {

namespace {

// `names` in the order of the enumerators.
template <auto kLast, size_t kCount>
std::string_view NameIn(const std::string_view (&names)[kCount], decltype(kLast) value) {
  static_assert(kCount == static_cast<size_t>(kLast) + 1);
  const auto index = static_cast<size_t>(value);
  return index < kCount ? names[index] : "other";
}

}  // namespace

std::string_view NameOf(Method method) {
  return NameIn<Method::kAlps>({"magnitude", "wanda", "ria", "sparsegpt", "sparsefw", "alps"},
                               method);
}

std::string_view NameOf(SaliencyMethod method) {
  return NameIn<SaliencyMethod::kRia>({"magnitude", "wanda", "ria"}, method);
}

std::string_view NameOf(StepRule rule) {
  return NameIn<StepRule::kAuto>({"open_loop", "line_search", "auto"}, rule);
}

std::string_view NameOf(ProductPrecision precision) {
  return NameIn<ProductPrecision::kBf16>({"fp32", "tf32", "bf16"}, precision);
}

std::string_view NameOf(Preset preset) {
  return NameIn<Preset::kBest>({"paper", "fast", "balanced", "best"}, preset);
}

std::string_view NameOf(Pattern::Kind kind) {
  return NameIn<Pattern::Kind::kKeepOfGroup>({"unstructured", "per_row", "nm"}, kind);
}

std::string_view NameOf(StopCause cause) {
  return NameIn<StopCause::kCancelled>({"ITERATIONS", "GAP", "DEADLINE", "CANCELLED"}, cause);
}

}  // namespace sparsefw
