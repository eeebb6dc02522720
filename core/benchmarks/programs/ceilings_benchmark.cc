// The machine's ceilings with --threads threads, the denominators of every floor.
// Each is the best of several repetitions.
//
//   sparsefw-bench-ceilings --threads T [--size 2048] [--triad-mib 384] [--seconds 2]
//
//   sgemm      2 size^3 flops of one product: the better of the library with its own threads
//              and of the blocks the engine cuts it into
//   triad      a[i] = b[i] + s c[i] over three arrays of triad-mib together, in no cache:
//              12 bytes an element
//   l2_triad   the same over arrays that fill half of each core's L2 cache
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/blas_ceiling.h"
#include "core/src/linalg/blas.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw::bench {
namespace {

constexpr int kLeastRepetitions = 3;

// The shortest of as many runs as fit in `seconds`.
double Best(double seconds, absl::FunctionRef<double()> run) {
  const Stopwatch watch;
  double best = run();
  for (int i = 1; i < kLeastRepetitions || watch.seconds() < seconds; ++i) {
    best = std::min(best, run());
  }
  return best;
}

double BlockedSgemmSeconds(const Matrix<float>& a, const Matrix<float>& b, Matrix<float>& c,
                           const ParallelContext& context) {
  const int64_t size = a.rows();
  const Stopwatch watch;
  static_cast<void>(
      Gemm<float>({size, size, size}, a, b, c, context));  // no limits: never cut short
  return watch.seconds();
}

// With the widest vectors of the machine, which L2 bandwidth needs. Not
// inlined: every pass must really run.
[[gnu::noinline, gnu::target_clones("avx512f", "avx2", "default")]] void TriadPass(
    int64_t count, float factor, const float* __restrict b, const float* __restrict c,
    float* __restrict a) {
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + factor * c[i];
}

// `passes` triads over arrays of `count` floats a thread, each thread on its own.
class Triad {
 public:
  Triad(int threads, int64_t count) {
    for (int i = 0; i < threads; ++i) parts_.push_back({{1, count}, {1, count}, {1, count}});
  }

  double Seconds(int64_t passes) {
    std::vector<std::thread> threads;
    const Stopwatch watch;
    for (Part& part : parts_) {
      threads.emplace_back([&part, passes] {
        for (int64_t pass = 0; pass < passes; ++pass) {
          TriadPass(part.a.size(), static_cast<float>(pass), part.b.data(), part.c.data(),
                    part.a.data());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return watch.seconds();
  }

  double Bytes(int64_t passes) const {
    return 12.0 * static_cast<double>(parts_.size()) *
           static_cast<double>(parts_[0].a.size() * passes);
  }

 private:
  struct Part {
    Matrix<float> a, b, c;
  };

  std::vector<Part> parts_;
};

// The cache of one core; 1 MiB where the system does not say.
int64_t L2CacheBytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index2/size");
  int64_t kib = 0;
  file >> kib;
  return (file && kib > 0 ? kib : 1024) * 1024;
}

// Bytes per second, best of several runs of about 20 ms or more.
double TriadRate(int threads, int64_t bytes_per_thread, double seconds) {
  Triad triad(threads, bytes_per_thread / 12);
  triad.Seconds(1);  // touches the pages
  const double once = std::max(1e-7, triad.Seconds(1));
  const auto passes = std::max<int64_t>(1, std::llround(0.02 / once));
  return triad.Bytes(passes) / Best(seconds, [&] { return triad.Seconds(passes); });
}

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const auto threads = static_cast<int>(flags.Integer("threads", 1));
  const int64_t size = flags.Integer("size", 2048);
  const int64_t triad_bytes = flags.Integer("triad-mib", 384) << 20;
  const double seconds = flags.Number("seconds", 2);
  flags.Finish();

  const ParallelContext context(threads);
  const Matrix<float> a = UniformMatrix(size, size, 1);
  const Matrix<float> b = UniformMatrix(size, size, 2);
  Matrix<float> c(size, size);
  const double flops = 2.0 * std::pow(static_cast<double>(size), 3);
  const double library = Best(seconds, [&] { return LibrarySgemmSeconds(a, b, c, threads); });
  const double blocked = Best(seconds, [&] { return BlockedSgemmSeconds(a, b, c, context); });
  const int64_t l2 = L2CacheBytes();

  std::cout
      << nlohmann::ordered_json{{"threads", threads},
                                {"blas", BlasDescription()},
                                {"sgemm_size", size},
                                {"sgemm_library_flops_per_second", flops / library},
                                {"sgemm_blocked_flops_per_second", flops / blocked},
                                {"sgemm_flops_per_second", flops / std::min(library, blocked)},
                                {"triad_bytes_per_second",
                                 TriadRate(threads, triad_bytes / threads, seconds)},
                                {"l2_cache_bytes", l2},
                                {"l2_triad_bytes_per_second", TriadRate(threads, l2 / 2, seconds)}}
             .dump()
      << '\n';
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
