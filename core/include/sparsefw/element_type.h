// The element types of matrices. Names and conversions: dtype.h.
#ifndef SPARSEFW_ELEMENT_TYPE_H_
#define SPARSEFW_ELEMENT_TYPE_H_

#include <cstddef>

namespace sparsefw {

// kBool is one byte an element (safetensors' BOOL); packed one-bit masks are
// not a dtype of a matrix view but a type of their own, Mask.
enum class DType { kF32, kF16, kBF16, kF64, kBool };

// Bytes of one element.
size_t SizeOf(DType dtype);

}  // namespace sparsefw

#endif  // SPARSEFW_ELEMENT_TYPE_H_
