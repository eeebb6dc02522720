// Where the sums of Gram accumulations are made.
#ifndef SPARSEFW_SERVER_TENSORS_UPLOADS_ACCUMULATORS_H_
#define SPARSEFW_SERVER_TENSORS_UPLOADS_ACCUMULATORS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/tensors/store/budget.h"
#include "sparsefw/backend.h"
#include "sparsefw/gram.h"

namespace sparsefw::server {

// Makes accumulators on the device, as long as they have room there together; else on the CPU, so
// that clients cannot use up memory of the device that jobs have reserved. Thread-safe.
class Accumulators {
 public:
  // `device_bytes`: for accumulators on the backend's device. The backend must outlive this.
  Accumulators(const Backend& backend, int threads, int64_t device_bytes)
      : backend_(backend), threads_(threads), device_(Budget::Create(device_bytes)) {}

  struct Sum {
    Budget::Reservation room;  // outlives what takes it
    std::unique_ptr<GramAccumulator> accumulator;
  };
  // Errors: those of Backend::CreateGramAccumulator, but for OUT_OF_MEMORY and DEVICE_LOST of
  // the device
  absl::StatusOr<Sum> Make(int64_t d_in);

  const Budget& device() const { return *device_; }
  // Made on the CPU because the device had no room, or was lost.
  int64_t without_room() const { return without_room_.load(std::memory_order_relaxed); }

 private:
  absl::StatusOr<Sum> MakeOnCpu(int64_t d_in);

  const Backend& backend_;
  const int threads_;
  const std::shared_ptr<Budget> device_;
  std::atomic<int64_t> without_room_{0};
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_UPLOADS_ACCUMULATORS_H_
