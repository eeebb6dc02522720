#include "server/tensors/uploads/accumulators.h"

#include <optional>
#include <utility>

#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

absl::StatusOr<Accumulators::Sum> Accumulators::Make(int64_t d_in) {
  const int64_t bytes = backend_.DeviceGramSumBytes(d_in);
  std::optional<Budget::Reservation> room = device_->TryReserve(bytes);
  if (!room.has_value()) return MakeOnCpu(d_in);
  auto accumulator = backend_.CreateGramAccumulator(d_in, threads_);
  // Other programs may have taken what was free at the start, and a device may be lost.
  const absl::Status& status = accumulator.status();
  if (bytes > 0 && (HasReason(status, "OUT_OF_MEMORY") || HasReason(status, "DEVICE_LOST"))) {
    return MakeOnCpu(d_in);
  }
  SPARSEFW_RETURN_IF_ERROR(accumulator.status());
  return Sum{*std::move(room), *std::move(accumulator)};
}

absl::StatusOr<Accumulators::Sum> Accumulators::MakeOnCpu(int64_t d_in) {
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* cpu, FindBackend("cpu"));
  SPARSEFW_ASSIGN_OR_RETURN(auto accumulator, cpu->CreateGramAccumulator(d_in, threads_));
  without_room_.fetch_add(1, std::memory_order_relaxed);
  return Sum{{}, std::move(accumulator)};
}

}  // namespace sparsefw::server
