#include "core/benchmarks/programs/blas_ceiling.h"

#include <cblas.h>

#include <algorithm>
#include <random>

#include "core/benchmarks/programs/bench_program.h"

// Weak: absent from other libraries with the CBLAS interface.
extern "C" void openblas_set_num_threads(int count) __attribute__((weak));
extern "C" char* openblas_get_config(void) __attribute__((weak));

namespace sparsefw::bench {
namespace {

void SetThreads(int count) {
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(count);
}

int Int(int64_t value) { return static_cast<int>(value); }

}  // namespace

std::string BlasDescription() {
  return openblas_get_config == nullptr ? "unknown BLAS" : openblas_get_config();
}

double LibrarySgemmSeconds(const Matrix<float>& a, const Matrix<float>& b, Matrix<float>& c,
                           int threads) {
  SetThreads(threads);
  const int size = Int(a.rows());
  const Stopwatch watch;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1.0F, a.data(), size,
              b.data(), size, 0.0F, c.data(), size);
  const double seconds = watch.seconds();
  SetThreads(1);
  return seconds;
}

double LibrarySsyrkSeconds(const Matrix<float>& a, Matrix<float>& c, int threads) {
  SetThreads(threads);
  const Stopwatch watch;
  cblas_ssyrk(CblasRowMajor, CblasUpper, CblasTrans, Int(a.cols()), Int(a.rows()), 1.0F, a.data(),
              Int(a.cols()), 0.0F, c.data(), Int(c.cols()));
  const double seconds = watch.seconds();
  SetThreads(1);
  return seconds;
}

Matrix<float> UniformMatrix(int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Matrix<float> result(rows, cols);
  std::generate_n(result.data(), result.size(), [&] { return uniform(random); });
  return result;
}

}  // namespace sparsefw::bench
