#include "core/src/parallel/workers.h"

namespace sparsefw::cpu {

absl::Status Workers::Outcome() const {
  return stopped() ? absl::CancelledError("the engine was told to stop") : absl::OkStatus();
}

absl::Status Workers::ForEach(int64_t count, absl::FunctionRef<void(int64_t)> body) {
  arena_.Execute([&] {
    ParallelFor(count, 1, [&](int64_t index, int64_t) {
      if (!stopped()) body(index);
    });
  });
  return Outcome();
}

absl::Status Workers::Gemm(const GemmArgs<float>& args) {
  GemmArgs<float> stoppable = args;
  stoppable.stop = stop_;
  arena_.Execute([&] { (void)GemmF32(stoppable); });
  return Outcome();
}

absl::Status Workers::Gemm(const GemmArgs<double>& args) {
  GemmArgs<double> stoppable = args;
  stoppable.stop = stop_;
  arena_.Execute([&] { (void)GemmF64(stoppable); });
  return Outcome();
}

}  // namespace sparsefw::cpu
