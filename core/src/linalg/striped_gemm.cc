#include "core/src/linalg/striped_gemm.h"

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

absl::Status StripedGemm(const GemmArgs<double>& args, cpu::Workers& workers) {
  const cpu::RowBlocks stripes{args.rows, StripeRows(args)};
  return workers.ForEach(stripes.count(), [&](int64_t index) {
    const int64_t begin = stripes.begin(index);
    GemmArgs<double> stripe = args;
    stripe.rows = stripes.end(index) - begin;
    stripe.a += begin * args.a_stride;
    stripe.c += begin * args.c_stride;
    (void)GemmF64(stripe);
  });
}

}  // namespace sparsefw::sparsegpt
