// 16-bit floats to float32, vectorised: rows of activations on their way to a product.
#ifndef SPARSEFW_CORE_SRC_LINALG_WIDEN_H_
#define SPARSEFW_CORE_SRC_LINALG_WIDEN_H_

#include <cstddef>

#include "sparsefw/dtype.h"

namespace sparsefw {

// ConvertToFloat of dtype.h for finite values, exactly. No alignment is needed.
void Widen(const Half* from, size_t count, float* out);
void Widen(const BFloat16* from, size_t count, float* out);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_WIDEN_H_
