// Dense products with the Gram matrix, a few rows at a time.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_GRAM_PRODUCT_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_GRAM_PRODUCT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw::cpu {

// fill(row, d) writes a row of D, [stride], zero beyond the columns; then
// visit(row, d, p) gets it with p = d G. Rows concurrently.
//
// Memory: 96 * stride * 2 values a thread
// Cost:   2 * rows * cols^2 flops
// Errors: Cancelled; not all rows were visited then
template <typename Real>
absl::Status MultiplyByGram(const PanelLayer<Real>& layer, const ParallelContext& context,
                            absl::FunctionRef<void(int64_t, Real*)> fill,
                            absl::FunctionRef<void(int64_t, const Real*, const Real*)> visit);

// Bytes that it holds on that many threads. size: of a value, here and in the other functions of
// that kind.
int64_t GramProductBytes(int64_t rows, int64_t cols, int threads, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_GRAM_PRODUCT_H_
