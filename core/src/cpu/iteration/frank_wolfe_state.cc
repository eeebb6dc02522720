// Writes and restores the state that the coming iterations depend on.
//
// Beside M, V, E, U and the scalars these are the selectors' guesses: the vertex
// does not depend on them, but the order in which <D_V, E> is summed may; and the
// epochs of screened iterations, ../screen/screened_epoch_state.cc. Right
// after a refresh E is D(M) G newly computed, and the next step computes U anew:
// both are left out then, and E is formed once more when it is restored.
#include <bit>

#include "core/src/cpu/iteration/frank_wolfe.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

struct Scalars {
  Recurrence recurrence;
  int64_t toggled = 0;
  double drift = 0;
  int64_t products = 0;  // 1: E and U follow
  int64_t older = 0;     // 1: the vertex before the last one follows
  int64_t rounded = 0;
  int64_t compared_at = 0;
};
static_assert(sizeof(Scalars) == sizeof(Recurrence) + 6 * sizeof(int64_t));
static_assert(sizeof(Recurrence) == 7 * sizeof(int64_t), "its bytes are written as they are");

// A bit beyond the columns would stand for a weight that does not exist.
absl::Status CheckPadding(const BitRows& bits, int64_t rows, int64_t cols) {
  if (cols % 64 == 0) return absl::OkStatus();
  const uint64_t beyond = ~uint64_t{0} << static_cast<uint64_t>(cols % 64);
  for (int64_t row = 0; row < rows; ++row) {
    if ((bits.row(row)[bits.words() - 1] & beyond) == 0) continue;
    return InvalidCheckpoint(
        "a vertex of a checkpoint must have no bit beyond its %d columns; row %d has one", cols,
        row);
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Real>
template <typename Visit>
absl::Status FrankWolfe<Real>::VisitState(const Visit& visit) {
  SPARSEFW_RETURN_IF_ERROR(visit("entries", std::as_writable_bytes(relaxed_.entries())));
  SPARSEFW_RETURN_IF_ERROR(visit("scales", std::as_writable_bytes(relaxed_.scales())));
  SPARSEFW_RETURN_IF_ERROR(visit("last_vertex", std::as_writable_bytes(iterate_.previous.span())));
  SPARSEFW_RETURN_IF_ERROR(visit("vertex", std::as_writable_bytes(iterate_.vertex.span())));
  return visit("guesses", selector_->guesses());
}

template <typename Real>
template <typename Visit>
absl::Status FrankWolfe<Real>::VisitProducts(const Visit& visit) {
  SPARSEFW_RETURN_IF_ERROR(visit("product", std::as_writable_bytes(iterate_.product.span())));
  return visit("vertex_product", std::as_writable_bytes(iterate_.vertex_product.span()));
}

template <typename Real>
template <typename Visit>
absl::Status FrankWolfe<Real>::VisitOlder(const Visit& visit) {
  OlderVertex<Real>& older = iterate_.older;
  SPARSEFW_RETURN_IF_ERROR(visit("older_vertex", std::as_writable_bytes(older.bits.span())));
  SPARSEFW_RETURN_IF_ERROR(visit("older_change", std::as_writable_bytes(std::span(older.change))));
  return visit("older_product", std::as_writable_bytes(older.product.span()));
}

template <typename Real>
absl::Status FrankWolfe<Real>::Save(StateWriter& writer) {
  if (unfinished_) return absl::FailedPreconditionError("a step was not finished");
  // Without them the step that comes first must form U anew.
  const bool products = !(fresh_ && ComputesVertexProductAnew());
  const bool older = products && iterate_.older.tracked();
  const Scalars scalars = {.recurrence = at_,
                           .toggled = toggled_,
                           .drift = drift_,
                           .products = products ? 1 : 0,
                           .older = older ? 1 : 0,
                           .rounded = rounded_,
                           .compared_at = compared_at_};
  const auto write = [&writer](std::string_view name, std::span<const std::byte> bytes) {
    return writer.Field(name, bytes);
  };
  SPARSEFW_RETURN_IF_ERROR(write("cpu_scalars", BytesOf(scalars)));
  SPARSEFW_RETURN_IF_ERROR(VisitState(write));
  if (products) SPARSEFW_RETURN_IF_ERROR(VisitProducts(write));
  if (older) SPARSEFW_RETURN_IF_ERROR(VisitOlder(write));
  return screen_ == nullptr ? absl::OkStatus() : screen_->Save(writer);
}

template <typename Real>
absl::Status FrankWolfe<Real>::RestoreFrom(StateReader& reader) {
  Scalars scalars;
  const auto read = [&](std::string_view name, std::span<std::byte> bytes) {
    return context_.stopped() ? absl::CancelledError("the engine was told to stop")
                              : reader.Read(name, bytes);
  };
  SPARSEFW_RETURN_IF_ERROR(read("cpu_scalars", WritableBytesOf(scalars)));
  SPARSEFW_RETURN_IF_ERROR(VisitState(read));
  for (const BitRows* vertex : {&iterate_.previous, &iterate_.vertex}) {
    SPARSEFW_RETURN_IF_ERROR(CheckPadding(*vertex, iterate_.layer->rows, iterate_.layer->cols));
  }
  if (scalars.products != 0) {
    SPARSEFW_RETURN_IF_ERROR(VisitProducts(read));
  } else {
    SPARSEFW_RETURN_IF_ERROR(CompareWithDense(0, true));  // replaces E and L
    const double saved = scalars.recurrence.relaxed_loss;
    if (std::bit_cast<uint64_t>(at_.relaxed_loss) != std::bit_cast<uint64_t>(saved)) {
      return InvalidCheckpoint(
          "a checkpoint must be of the same weights and gram; its relaxed loss is %.17g, "
          "that of its mask is %.17g here (both scaled)",
          saved, at_.relaxed_loss);
    }
  }
  if (scalars.older != 0) {
    iterate_.TrackOlder();
    SPARSEFW_RETURN_IF_ERROR(VisitOlder(read));
    SPARSEFW_RETURN_IF_ERROR(
        CheckPadding(iterate_.older.bits, iterate_.layer->rows, iterate_.layer->cols));
  }
  fresh_ = scalars.products == 0;
  at_ = scalars.recurrence;
  toggled_ = scalars.toggled;
  drift_ = scalars.drift;
  rounded_ = scalars.rounded;
  compared_at_ = scalars.compared_at;
  return screen_ == nullptr ? absl::OkStatus() : screen_->Restore(reader);
}

template <typename Real>
absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<SaliencySource>>> FrankWolfe<Real>::Restore(
    std::shared_ptr<const PanelLayer<Real>> layer, const StartPoint& start, StateReader& reader,
    const ParallelContext& context) {
  std::unique_ptr<FrankWolfe> result(new FrankWolfe(std::move(layer), start, context));
  SPARSEFW_RETURN_IF_ERROR(result->RestoreFrom(reader));
  return result;
}

#define SPARSEFW_INSTANTIATE(Real)                                                      \
  template absl::Status FrankWolfe<Real>::Save(StateWriter&);                           \
  template absl::Status FrankWolfe<Real>::RestoreFrom(StateReader&);                    \
  template absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<SaliencySource>>>       \
  FrankWolfe<Real>::Restore(std::shared_ptr<const PanelLayer<Real>>, const StartPoint&, \
                            StateReader&, const ParallelContext&)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
