// The device itself, its BLAS, and the kernels that bring matrices into the engine's form.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/linalg/dense_product.h"
#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/linalg/gram_sum.h"
#include "core/src/cuda/linalg/layer_kernels.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/linalg/symmetric_product.h"
#include "core/src/cuda/runtime/cublas_library.h"
#include "core/src/cuda/runtime/cublas_version.h"
#include "sparsefw/dtype.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

std::vector<double> RandomValues(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<double> values(static_cast<size_t>(size));
  std::generate(values.begin(), values.end(), [&] { return static_cast<double>(uniform(random)); });
  return values;
}

template <typename T>
std::vector<T> As(const std::vector<double>& values) {
  std::vector<T> converted(values.size());
  std::transform(values.begin(), values.end(), converted.begin(), [](double value) {
    if constexpr (std::is_same_v<T, Half>) return ToHalf(static_cast<float>(value));
    if constexpr (std::is_same_v<T, BFloat16>) return ToBFloat16(static_cast<float>(value));
    if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(value);
  });
  return converted;
}

// As they are after a conversion to T.
template <typename T>
std::vector<double> Rounded(const std::vector<double>& values) {
  const std::vector<T> converted = As<T>(values);
  std::vector<double> rounded(values.size());
  ConvertToDouble(converted.data(), DTypeOf<T>(), values.size(), rounded.data());
  return rounded;
}

// a b, or a b^T; a [rows, depth].
std::vector<double> HostProduct(const std::vector<double>& a, const std::vector<double>& b,
                                int64_t rows, int64_t cols, int64_t depth) {
  std::vector<double> product(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      const double factor = a[static_cast<size_t>(i * depth + k)];
      for (int64_t j = 0; j < cols; ++j) {
        product[static_cast<size_t>(i * cols + j)] += factor * b[static_cast<size_t>(k * cols + j)];
      }
    }
  }
  return product;
}

template <typename Real>
void DenseOf(Smoke& smoke, const std::string& name, int64_t rows, int64_t cols,
             ProductPrecision precision, double limit) {
  const std::vector<double> a = RandomValues(rows * cols, 1);
  std::vector<double> b = RandomValues(cols * cols, 2);
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      b[static_cast<size_t>(i * cols + j)] = b[static_cast<size_t>(j * cols + i)];
    }
  }
  if (cuda::StrideOf(cols) != cols) Die("the products need rows without padding");
  // As an engine has them: scale.h.
  constexpr double kScale = 0x1.0p32;
  const auto scaled = [](std::vector<double> values) {
    for (double& value : values) value *= kScale;
    return values;
  };
  DeviceValues<Real> on_a(As<Real>(scaled(a)));
  DeviceValues<Real> on_c(rows * cols);
  cuda::DeviceLayer<Real> layer;
  layer.rows = rows;
  layer.cols = layer.stride = cols;
  layer.weights = OrDie(cuda::DeviceBuffer<Real>::Zeroed(rows * cols, nullptr));
  layer.gram = OrDie(cuda::DeviceBuffer<Real>::Create(cols * cols, nullptr));
  DeviceValues<Real> on_b(As<Real>(scaled(b)));
  OrDie(cuda::ToStatus(cudaMemcpyAsync(layer.gram.data(), on_b.data(),
                                       static_cast<size_t>(cols * cols) * sizeof(Real),
                                       cudaMemcpyDeviceToDevice, nullptr),
                       "cudaMemcpyAsync"));
  smoke.Begin(name);
  const cuda::CublasLibrary* library = OrDie(cuda::CublasLibrary::Open());
  cublasHandle_t handle = nullptr;
  OrDie(cuda::ToStatus(library->create(&handle), "cublasCreate"));
  const cuda::DenseProduct product(*library, handle);
  using Product = cuda::SymmetricProduct<Real>;
  auto symmetric =
      OrDie(Product::Create(layer, rows, Product::Use::kRows, precision, product, nullptr));
  smoke.Kernel(
      name, nullptr,
      [&](cudaStream_t) { return symmetric.MultiplyRows(rows, on_a.data(), on_c.data()); },
      [&] {
        std::vector<double> found = AsDoubles(on_c.Get());
        if (symmetric.scale() != nullptr) {
          std::vector<Real> scale(static_cast<size_t>(rows));
          OrDie(cuda::ToStatus(
              cudaMemcpyAsync(scale.data(), symmetric.scale(), scale.size() * sizeof(Real),
                              cudaMemcpyDeviceToHost, nullptr),
              "cudaMemcpyAsync"));
          OrDie(cuda::ToStatus(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"));
          for (int64_t i = 0; i < rows * cols; ++i) {
            found[static_cast<size_t>(i)] *=
                static_cast<double>(scale[static_cast<size_t>(i / cols)]);
          }
        }
        for (double& value : found) value /= kScale * kScale;
        return Compare(found, HostProduct(a, b, rows, cols, cols), limit);
      });
  OrDie(cuda::ToStatus(library->destroy(handle), "cublasDestroy"));
}

template <typename T>
void ConvertOf(Smoke& smoke, const std::string& name, int64_t rows, int64_t cols) {
  const int64_t stride = cuda::StrideOf(cols);
  const std::vector<double> values = RandomValues(rows * cols, 3);
  DeviceValues<T> given(As<T>(values));
  DeviceValues<float> out(rows * stride);
  const cuda::RawMatrix matrix = {given.data(), DTypeOf<T>(), rows, cols};
  smoke.Kernel(
      "convert " + name, nullptr,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchConvert<float>(matrix, 2.0, out.data(), stride, stream));
      },
      [&] {
        const std::vector<double> rounded = Rounded<T>(values);
        std::vector<double> expected(static_cast<size_t>(rows * stride));
        for (int64_t i = 0; i < rows * cols; ++i) {
          expected[static_cast<size_t>(i / cols * stride + i % cols)] =
              2 * rounded[static_cast<size_t>(i)];
        }
        return Compare(AsDoubles(out.Get()), expected, 1e-7);
      });
  DeviceValues<double> partial(cuda::MaxAbsBlocks(matrix));
  smoke.Kernel(
      "largest value " + name, nullptr,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchMaxAbs(matrix, partial.data(), stream));
      },
      [&] {
        const std::vector<double> found = partial.Get();
        double largest = 0;
        for (const double value : Rounded<T>(values)) largest = std::max(largest, std::abs(value));
        return Compare({*std::max_element(found.begin(), found.end())}, {largest}, 0);
      });
}

// D = W.(1 - M) from W as it is given, M every third weight.
void RawRowsOf(Smoke& smoke, int64_t rows, int64_t cols) {
  const int64_t stride = cuda::StrideOf(cols);
  const std::vector<double> values = RandomValues(rows * cols, 4);
  std::vector<cuda::BitWord> kept(static_cast<size_t>(rows * stride / 32));
  std::vector<double> pruned = values;
  for (int64_t i = 0; i < rows * cols; i += 3) {
    const int64_t at = i / cols * stride + i % cols;
    kept[static_cast<size_t>(at / 32)] |= cuda::BitWord{1} << (at % 32);
    pruned[static_cast<size_t>(i)] = 0;
  }
  DeviceValues<float> given(As<float>(values));
  DeviceValues<cuda::BitWord> on_kept(kept);
  DeviceValues<double> out(rows * cols);
  DeviceValues<double> product(RandomValues(rows * cols, 5));
  DeviceValues<double> sums(rows);
  const cuda::RawRows raw = {.weights = {given.data(), DType::kF32, rows, cols},
                             .kept = on_kept.data()};
  smoke.Kernel(
      "raw columns", nullptr,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchRawColumns(raw, 0, cols, cols, out.data(), stream));
      },
      [&] { return Compare(out.Get(), pruned, 0); });
  smoke.Kernel(
      "row products", [&] { sums.Set(std::vector<double>(static_cast<size_t>(rows))); },
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchAddRowDots(raw, product.data(), sums.data(), stream));
      },
      [&] {
        const std::vector<double> other = product.Get();
        std::vector<double> expected(static_cast<size_t>(rows));
        for (int64_t i = 0; i < rows * cols; ++i) {
          expected[static_cast<size_t>(i / cols)] +=
              pruned[static_cast<size_t>(i)] * other[static_cast<size_t>(i)];
        }
        return Compare(sums.Get(), expected, 1e-12);
      });
}

std::string VersionText(int version) {
  return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10);
}

}  // namespace

void SmokeDevice(Smoke& smoke) {
  smoke.Begin("device");
  int count = 0;
  OrDie(cuda::ToStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  int driver = 0;
  int runtime = 0;
  OrDie(cuda::ToStatus(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  OrDie(cuda::ToStatus(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"));
  cudaDeviceProp properties = {};
  OrDie(cuda::ToStatus(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties"));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  OrDie(cuda::ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
  smoke.Report(
      "device", true,
      absl::StrFormat("%s, compute capability %d.%d, %d GiB of which %d free, CUDA %s of "
                      "the driver, %s of the build",
                      properties.name, properties.major, properties.minor, total_bytes >> 30,
                      free_bytes >> 30, VersionText(driver), VersionText(runtime)),
      {{"devices", count}, {"name", properties.name}, {"memory_bytes", total_bytes}});
  smoke.Begin("cuBLAS");
  const cuda::CublasLibrary* library = OrDie(cuda::CublasLibrary::Open());
  smoke.Report(
      "cuBLAS", true,
      absl::StrFormat("%s, version %s", library->name, OrDie(cuda::CublasVersion(*library))));
}

void SmokeDense(Smoke& smoke, int64_t rows, int64_t cols) {
  DenseOf<float>(smoke, "product fp32", rows, cols, ProductPrecision::kFloat32, 1e-5);
  DenseOf<float>(smoke, "product tf32", rows, cols, ProductPrecision::kTf32, 5e-3);
  DenseOf<float>(smoke, "product bf16", rows, cols, ProductPrecision::kBf16, 5e-3);
  if (smoke.timing()) return;
  DenseOf<double>(smoke, "product fp64", rows, cols, ProductPrecision::kFloat32, 1e-13);
}

void SmokeLayerKernels(Smoke& smoke, int64_t rows, int64_t cols) {
  ConvertOf<float>(smoke, "fp32", rows, cols);
  ConvertOf<Half>(smoke, "fp16", rows, cols);
  ConvertOf<BFloat16>(smoke, "bf16", rows, cols);
  RawRowsOf(smoke, rows, cols);
  const int64_t stride = cuda::StrideOf(cols);
  const std::vector<double> gram = RandomValues(cols * cols, 6);
  DeviceValues<double> given(gram);
  DeviceValues<double> out(cols * stride);
  smoke.Kernel(
      "symmetrise", nullptr,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchSymmetrise<double>(
            {given.data(), DType::kF64, cols, cols}, 0.5, out.data(), stride, stream));
      },
      [&] {
        std::vector<double> expected(static_cast<size_t>(cols * stride));
        for (int64_t i = 0; i < cols; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            expected[static_cast<size_t>(i * stride + j)] =
                (gram[static_cast<size_t>(i * cols + j)] +
                 gram[static_cast<size_t>(j * cols + i)]) /
                4;
          }
        }
        return Compare(out.Get(), expected, 1e-15);
      });
  DeviceValues<float> narrow(As<float>(gram));
  smoke.Kernel(
      "widen", nullptr,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchWiden(narrow.data(), cols * cols, given.data(), stream));
      },
      [&] { return Compare(given.Get(), gram, 0); });
}

// sum += product in the upper triangle, then the mirror of it.
void SmokeGramKernels(Smoke& smoke, int64_t rows, int64_t cols) {
  static_cast<void>(rows);
  const std::vector<double> product = RandomValues(cols * cols, 8);
  const std::vector<double> before = RandomValues(cols * cols, 9);
  DeviceValues<float> given(As<float>(product));
  DeviceValues<double> wide(product);
  DeviceValues<double> sum(before);
  const auto reset = [&] { sum.Set(before); };
  const auto upper = [cols](const std::vector<double>& matrix) {
    std::vector<double> part;
    for (int64_t i = 0; i < cols; ++i) {
      for (int64_t j = i; j < cols; ++j) part.push_back(matrix[static_cast<size_t>(i * cols + j)]);
    }
    return part;
  };
  smoke.Kernel(
      "add product", reset,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(
            cuda::LaunchAddProduct(given.data(), 0, cols, cols, sum.data(), stream));
      },
      [&] {
        std::vector<double> expected = before;
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += product[i];
        return Compare(upper(sum.Get()), upper(expected), 1e-15);
      });
  const cuda::RawMatrix matrix = {wide.data(), DType::kF64, cols, cols};
  smoke.Kernel(
      "add mean", reset,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchAddMean(matrix, matrix, 0, cols, sum.data(), stream));
      },
      [&] {
        std::vector<double> expected = before;
        for (int64_t i = 0; i < cols; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            expected[static_cast<size_t>(i * cols + j)] +=
                (product[static_cast<size_t>(i * cols + j)] +
                 product[static_cast<size_t>(j * cols + i)]) /
                2;
          }
        }
        return Compare(upper(sum.Get()), upper(expected), 1e-15);
      });
  smoke.Kernel(
      "mirror", reset,
      [&](cudaStream_t stream) {
        return cuda::ToStatus(cuda::LaunchMirror(cols, sum.data(), stream));
      },
      [&] {
        std::vector<double> expected = before;
        for (int64_t i = 0; i < cols; ++i) {
          for (int64_t j = 0; j < i; ++j) {
            expected[static_cast<size_t>(i * cols + j)] =
                expected[static_cast<size_t>(j * cols + i)];
          }
        }
        return Compare(sum.Get(), expected, 0);
      });
}

}  // namespace sparsefw::bench
