// Gram accumulation from activations, beside the library's ssyrk on the same values.
//
//   sparsefw-bench-gram --cols D --tokens N --threads T [--repetitions 5]
//
// All four are run in turn, --repetitions times, after one warm-up; the shortest of each is
// printed. ssyrk is one call over all tokens: the most that the library can reach.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/blas_ceiling.h"
#include "sparsefw/backend.h"
#include "sparsefw/gram.h"

namespace sparsefw::bench {
namespace {

template <typename T>
Matrix<T> Converted(const Matrix<float>& from, T (*convert)(float)) {
  Matrix<T> result(from.rows(), from.cols());
  std::transform(from.data(), from.data() + from.size(), result.data(), convert);
  return result;
}

double AddSeconds(GramAccumulator& sum, ConstMatrixView chunk) {
  const Stopwatch watch;
  OrDie(sum.Add(chunk));
  return watch.seconds();
}

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const int64_t cols = flags.Integer("cols", 4096);
  const int64_t tokens = flags.Integer("tokens", 8192);
  const auto threads = static_cast<int>(flags.Integer("threads", 1));
  const int64_t repetitions = flags.Integer("repetitions", 5);
  flags.Finish();

  const Backend* backend = OrDie(FindBackend("cpu"));
  const auto sum = OrDie(backend->CreateGramAccumulator(cols, threads));
  const Matrix<float> f32 = UniformMatrix(tokens, cols, 3);
  const Matrix<BFloat16> bf16 = Converted<BFloat16>(f32, ToBFloat16);
  const Matrix<Half> f16 = Converted<Half>(f32, ToHalf);
  Matrix<float> product(cols, cols);

  std::vector<double> best(4, 1e30);
  for (int64_t i = 0; i <= repetitions; ++i) {
    const std::vector<double> seconds = {
        LibrarySsyrkSeconds(f32, product, threads), AddSeconds(*sum, f32.view()),
        AddSeconds(*sum, bf16.view()), AddSeconds(*sum, f16.view())};
    if (i == 0) continue;
    std::transform(best.begin(), best.end(), seconds.begin(), best.begin(),
                   [](double a, double b) { return std::min(a, b); });
  }
  const double flops =
      static_cast<double>(tokens) * static_cast<double>(cols) * static_cast<double>(cols + 1);
  std::cout << nlohmann::ordered_json{{"cols", cols},
                                      {"tokens", tokens},
                                      {"threads", threads},
                                      {"flops", flops},
                                      {"ssyrk_seconds", best[0]},
                                      {"f32_seconds", best[1]},
                                      {"bf16_seconds", best[2]},
                                      {"f16_seconds", best[3]}}
                   .dump()
            << '\n';
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
