#include "server/rpc/jobs/announced_inputs.h"

#include <optional>
#include <string>

#include "server/rpc/convert/convert.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

absl::Status About(std::string_view field, const absl::Status& status) {
  return WithMetadata(status, "field", field);
}

// How many of the ways to give an input were taken: at most one, with `required` exactly one.
absl::Status CheckSources(std::string_view what, int count, bool required,
                          std::string_view sources) {
  if (count == 1 || (count == 0 && !required)) return absl::OkStatus();
  return Invalid("SPEC_INVALID", "the %s must come from %s one of %s; got %d", what,
                 required ? "exactly" : "at most", sources, count);
}

template <typename Message>
absl::Status CheckSources(const JobSpec& spec, const Message& message, std::string_view prefix,
                          bool required) {
  const int weights = (message.has_weight() ? 1 : 0) + (spec.weight.empty() ? 0 : 1);
  SPARSEFW_RETURN_IF_ERROR(
      About("weight", CheckSources("weight", weights, required,
                                   absl::StrFormat("spec.weight and %sweight", prefix))));
  const int grams = (message.has_gram() ? 1 : 0) + (message.has_activations() ? 1 : 0) +
                    (spec.gram.empty() ? 0 : 1);
  return About("gram",
               CheckSources("Gram matrix", grams, required,
                            absl::StrFormat("spec.gram, %1$sgram and %1$sactivations", prefix)));
}

absl::StatusOr<MatrixSpec> OfKind(const v1::TensorSpec& proto, TensorKind kind,
                                  std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const TensorKind given,
                            FromProto(proto.kind(), absl::StrFormat("%s.kind", name)));
  if (given != kind) {
    return Invalid("SPEC_INVALID", "%s.kind must be %s; got %s", name, NameOf(kind), NameOf(given));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(proto));
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  return MatrixSpecOf(spec);
}

absl::StatusOr<MatrixSpec> OfActivations(const v1::GramSpec& proto) {
  SPARSEFW_ASSIGN_OR_RETURN(const GramSpec spec, FromProto(proto));
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  return MatrixSpecOf(ResultSpec(spec, 0));
}

// `status` of a StatusOr, about a field.
template <typename Value>
absl::Status Into(std::optional<MatrixSpec>* to, std::string_view field, Value value) {
  if (!value.ok()) return About(field, value.status());
  *to = *value;
  return absl::OkStatus();
}

template <typename Message>
absl::StatusOr<InputSpecs> WeightAndGram(const Message& message, const std::string& prefix) {
  InputSpecs inputs;
  if (message.has_weight()) {
    SPARSEFW_RETURN_IF_ERROR(
        Into(&inputs.weight, "weight",
             OfKind(message.weight(), TensorKind::kWeight, prefix + "weight")));
  }
  if (message.has_gram()) {
    SPARSEFW_RETURN_IF_ERROR(
        Into(&inputs.gram, "gram", OfKind(message.gram(), TensorKind::kGram, prefix + "gram")));
  }
  if (message.has_activations()) {
    SPARSEFW_RETURN_IF_ERROR(
        Into(&inputs.gram, "activations", OfActivations(message.activations())));
    inputs.activations = true;
  }
  return inputs;
}

}  // namespace

absl::StatusOr<InputSpecs> AnnouncedInputs(const JobSpec& spec, const v1::PruneHeader& header) {
  SPARSEFW_RETURN_IF_ERROR(CheckSources(spec, header, "header.", true));
  return WeightAndGram(header, "header.");
}

absl::StatusOr<InputSpecs> AnnouncedInputs(const JobSpec& spec,
                                           const v1::CheckJobOptionsRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(CheckSources(spec, request, "", false));
  SPARSEFW_ASSIGN_OR_RETURN(InputSpecs inputs, WeightAndGram(request, ""));
  if (!request.has_warm_start()) return inputs;
  const bool named = !spec.warm_mask.empty() || !spec.warm_saliency.empty();
  SPARSEFW_RETURN_IF_ERROR(
      CheckSources("warm start", named ? 2 : 1, false, "spec.warm_start and warm_start"));
  SPARSEFW_ASSIGN_OR_RETURN(const TensorKind kind,
                            FromProto(request.warm_start().kind(), "warm_start.kind"));
  const bool mask = kind == TensorKind::kMask;
  if (!mask && kind != TensorKind::kSaliency) {
    return About(
        "warm_start",
        Invalid("SPEC_INVALID", "warm_start.kind must be MASK or SALIENCY; got %s", NameOf(kind)));
  }
  SPARSEFW_RETURN_IF_ERROR(Into(mask ? &inputs.warm_mask : &inputs.warm_saliency,
                                mask ? "warm_start.mask" : "warm_start.saliency",
                                OfKind(request.warm_start(), kind, "warm_start")));
  return inputs;
}

}  // namespace sparsefw::server
