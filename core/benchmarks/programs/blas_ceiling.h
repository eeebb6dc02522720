// The rates of the BLAS library with its own threads: the ceilings of the engine's products.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BLAS_CEILING_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BLAS_CEILING_H_

#include <cstdint>
#include <string>

#include "sparsefw/matrix.h"

namespace sparsefw::bench {

// "OpenBLAS 0.3.21 ..." where the library says, else "unknown BLAS".
std::string BlasDescription();

// Seconds of one call with `threads` threads of the library; leaves the library at one
// thread, as the engine sets it.
//
//   c = a b      all [size, size]
double LibrarySgemmSeconds(const Matrix<float>& a, const Matrix<float>& b, Matrix<float>& c,
                           int threads);
//   c = a^T a    the upper triangle; a [rows, cols], c [cols, cols]
double LibrarySsyrkSeconds(const Matrix<float>& a, Matrix<float>& c, int threads);

// A matrix of uniform values in [-1, 1), seeded.
Matrix<float> UniformMatrix(int64_t rows, int64_t cols, uint64_t seed);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BLAS_CEILING_H_
