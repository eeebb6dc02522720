#include "core/src/sparsegpt/limited_workers.h"

#include <algorithm>

namespace sparsefw::sparsegpt {
namespace {

constexpr int64_t kStripeFlops = int64_t{1} << 29;
constexpr int64_t kStripeUnit = 64;  // rows of the smallest block of GemmF64

int64_t StripeRows(const GemmArgs<double>& args) {
  const int64_t flops_of_row = 2 * std::max<int64_t>(1, args.cols * args.depth);
  return std::max<int64_t>(1, kStripeFlops / flops_of_row / kStripeUnit) * kStripeUnit;
}

}  // namespace

bool LimitedWorkers::Halted() {
  const bool stopped = limits_.stop != nullptr && limits_.stop->requested();
  if (stopped || (limits_.past_deadline && limits_.past_deadline())) halt_.Request();
  return halt_.requested();
}

absl::Status LimitedWorkers::ForEach(int64_t count, absl::FunctionRef<void(int64_t)> body) {
  return workers_.ForEach(count, [&](int64_t index) {
    if (!Halted()) body(index);
  });
}

absl::Status LimitedWorkers::Gemm(const GemmArgs<double>& args) {
  const cpu::RowBlocks stripes{args.rows, StripeRows(args)};
  return ForEach(stripes.count(), [&](int64_t index) {
    const int64_t begin = stripes.begin(index);
    GemmArgs<double> stripe = args;
    stripe.rows = stripes.end(index) - begin;
    stripe.a += begin * args.a_stride;
    stripe.c += begin * args.c_stride;
    stripe.stop = &halt_;
    (void)GemmF64(stripe);
  });
}

}  // namespace sparsefw::sparsegpt
