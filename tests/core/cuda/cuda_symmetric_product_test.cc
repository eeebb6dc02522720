// Products of float32 matrices as products of float16 ones: their error bound, entry by entry.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/src/cuda/linalg/symmetric_product.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "gtest/gtest.h"
#include "sparsefw/dtype.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using testing::IsOk;
using testing::Random;
using Product = SymmetricProduct<float>;

constexpr int64_t kRows = 6;
constexpr int64_t kCols = 200;

class SymmetricProductTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(context_,
                                  ExecutionContext::Open(0, kSmallWorkspaceBytes, nullptr));
    layer_.rows = kRows;
    layer_.cols = kCols;
    layer_.stride = StrideOf(kCols);
    gram_.resize(static_cast<size_t>(kCols * layer_.stride));
    for (int64_t i = 0; i < kCols; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        // Some entries are small beside the largest, as those of correlations are.
        const double value = (random_.Uniform() - 0.5) * (j % 7 == 0 ? 1e-4 : 1.0);
        gram_[At(i, j)] = gram_[At(j, i)] = static_cast<float>(value) * 0x1.0p33F;
      }
    }
    layer_.gram = Upload(gram_);
  }

  // G of inputs of which channel j is about size(j) times as large as the least.
  template <typename Size>
  void SetInputs(const Size& size) {
    constexpr int64_t kTokens = 256;
    std::vector<double> inputs(static_cast<size_t>(kTokens * kCols));
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = (random_.Uniform() - 0.5) * size(static_cast<int64_t>(i) % kCols);
    }
    std::vector<double> sums(gram_.size());
    double largest = 0;
    for (int64_t i = 0; i < kCols; ++i) {
      for (int64_t j = 0; j < kCols; ++j) {
        double& sum = sums[At(i, j)];
        for (int64_t token = 0; token < kTokens; ++token) {
          sum += inputs[static_cast<size_t>(token * kCols + i)] *
                 inputs[static_cast<size_t>(token * kCols + j)];
        }
        largest = std::max(largest, std::abs(sum));
      }
    }
    const int exponent = layer_.largest_exponent - std::ilogb(largest);
    std::transform(sums.begin(), sums.end(), gram_.begin(),
                   [&](double sum) { return static_cast<float>(std::ldexp(sum, exponent)); });
    layer_.gram = Upload(gram_);
  }

  size_t At(int64_t row, int64_t col) const {
    return static_cast<size_t>(row * layer_.stride + col);
  }

  DeviceBuffer<float> Upload(const std::vector<float>& values) {
    auto buffer = DeviceBuffer<float>::Create(std::ssize(values), context_->stream());
    EXPECT_EQ(cudaMemcpyAsync(buffer->data(), values.data(), values.size() * sizeof(float),
                              cudaMemcpyHostToDevice, context_->stream()),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(context_->stream()), cudaSuccess);
    return *std::move(buffer);
  }

  template <typename T>
  std::vector<T> Download(const T* from, int64_t size) {
    std::vector<T> values(static_cast<size_t>(size));
    EXPECT_EQ(cudaMemcpyAsync(values.data(), from, values.size() * sizeof(T),
                              cudaMemcpyDeviceToHost, context_->stream()),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(context_->stream()), cudaSuccess);
    return values;
  }

  // Rows of `scale`, padded.
  std::vector<float> RandomRows(const std::vector<float>& scale) {
    std::vector<float> values(static_cast<size_t>(kRows * layer_.stride));
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        const auto value = static_cast<float>(random_.Uniform() - 0.5);
        values[At(row, col)] = value * scale[static_cast<size_t>(row)];
      }
    }
    return values;
  }

  // The largest error of an entry, relative to (|A| |G|) there, whose rounding bounds it, and
  // 2^-18 (max|A| |S^-1 G| + |A S| max|G|), which float16 numbers near the least one add to it.
  double Error(const std::vector<float>& a, const std::vector<float>& out,
               const std::vector<float>& scale) const {
    double worst = 0;
    const double largest = static_cast<double>(*std::max_element(gram_.begin(), gram_.end()));
    for (int64_t row = 0; row < kRows; ++row) {
      double most = 0;
      for (int64_t k = 0; k < kCols; ++k) {
        most = std::max(most, std::abs(static_cast<double>(a[At(row, k)])));
      }
      for (int64_t col = 0; col < kCols; ++col) {
        double sum = 0;
        double size = 0;
        for (int64_t k = 0; k < kCols; ++k) {
          const auto value = static_cast<double>(a[At(row, k)]);
          const auto entry = static_cast<double>(gram_[At(k, col)]);
          sum += value * entry;
          size += std::abs(value * entry);
          const double s = std::sqrt(std::max(0.0, static_cast<double>(gram_[At(k, k)]) / largest));
          if (s > 0) {
            size += 0x1.0p-18 * (std::abs(value) * s * largest + most * std::abs(entry) / s);
          }
        }
        const double found = static_cast<double>(out[At(row, col)]) *
                             static_cast<double>(scale[static_cast<size_t>(row)]);
        if (size > 0) worst = std::max(worst, std::abs(found - sum) / size);
        EXPECT_FALSE(size == 0 && found != 0);
      }
    }
    return worst;
  }

  double ErrorOfRows(const std::vector<float>& a, ProductPrecision precision) {
    layer_.weights = Upload(a);
    Product product =
        Product::Create(layer_, kRows, Product::Use::kRows, precision, *context_).value();
    const auto given = Upload(a);
    auto out = Upload(std::vector<float>(a.size()));
    EXPECT_THAT(product.MultiplyRows(kRows, given.data(), out.data()), IsOk());
    return Error(a, Download(out.data(), out.size()), Download(product.scale(), kRows));
  }

  // The weights themselves as the operand.
  double ErrorOfWeights(const std::vector<float>& a, Product::Values values, bool* has_low) {
    layer_.weights = Upload(a);
    Product product = Product::Create(layer_, kRows, Product::Use::kOperand,
                                      ProductPrecision::kFloat32, *context_)
                          .value();
    const LeftOperand<float> operand = product.operand(values);
    *has_low = operand.low != nullptr;
    std::vector<uint16_t> high(a.size());
    std::vector<uint16_t> low(a.size());
    const std::vector<float> columns = Download(operand.columns, layer_.stride);
    const LeftOperand<float> host = {high.data(), *has_low ? low.data() : nullptr, operand.factor,
                                     columns.data()};
    for (size_t i = 0; i < a.size(); i += kOperandEntries) {
      float eight[kOperandEntries];
      std::copy_n(a.begin() + static_cast<int64_t>(i), kOperandEntries, eight);
      host.Put(static_cast<int64_t>(i), static_cast<int64_t>(i) % layer_.stride, eight);
    }
    Put(high, operand.high);
    if (*has_low) Put(low, operand.low);
    auto out = Upload(std::vector<float>(a.size()));
    EXPECT_THAT(product.Multiply(kRows, values, out.data()), IsOk());
    return Error(a, Download(out.data(), out.size()), std::vector<float>(kRows, 1));
  }

  void Put(const std::vector<uint16_t>& from, uint16_t* to) {
    EXPECT_EQ(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(uint16_t),
                              cudaMemcpyHostToDevice, context_->stream()),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(context_->stream()), cudaSuccess);
  }

  std::unique_ptr<ExecutionContext> context_;
  DeviceLayer<float> layer_;
  std::vector<float> gram_;
  Random random_{17};
};

constexpr double kSplitError = 0x1.0p-20;  // of the split, and of sums in float32
constexpr double kHalfError = 0x1.0p-10;

TEST_F(SymmetricProductTest, RowsOfAnyRangeHaveTheErrorOfFloat32_cuda) {
  const std::vector<float> a = RandomRows({1, 1e-20F, 1e20F, 0, 3e-7F, 2e9F});
  EXPECT_LT(ErrorOfRows(a, ProductPrecision::kFloat32), kSplitError);
}

// As the joint search scales its layers.
TEST_F(SymmetricProductTest, LayersNearOneHaveTheSameError_cuda) {
  for (float& value : gram_) value = std::ldexp(value, -32);
  layer_.gram = Upload(gram_);
  layer_.largest_exponent = 0;
  std::vector<float> weights = RandomRows(std::vector<float>(kRows, 2.0F));
  EXPECT_LT(ErrorOfRows(weights, ProductPrecision::kFloat32), kSplitError);
  bool has_low = false;
  EXPECT_LT(ErrorOfWeights(weights, Product::Values::kAny, &has_low), kSplitError);
}

// A few massive activations, as language models have them, and channels of every size. Where
// weights of the large ones are pruned, nothing hides the error of the others.
TEST_F(SymmetricProductTest, InputsOfVeryDifferentSizeHaveTheSameError_cuda) {
  for (const double amplitude : {1e4, 1e5}) {
    for (const bool few : {true, false}) {
      SCOPED_TRACE(::testing::Message() << amplitude << (few ? ", few" : ", all sizes"));
      const auto is_large = [&](int64_t col) { return few ? col % 50 == 3 : 2 * col > kCols; };
      SetInputs([&](int64_t col) {
        if (few) return is_large(col) ? amplitude : 1;
        return std::pow(amplitude, static_cast<double>(col) / static_cast<double>(kCols - 1));
      });
      std::vector<float> a = RandomRows(std::vector<float>(kRows, 0x1.0p33F));
      for (int64_t row = 0; row < kRows; row += 2) {
        for (int64_t col = 0; col < kCols; ++col) {
          if (is_large(col)) a[At(row, col)] = 0;
        }
      }
      EXPECT_LT(ErrorOfRows(a, ProductPrecision::kFloat32), kSplitError);
      EXPECT_LT(ErrorOfRows(a, ProductPrecision::kTf32), kHalfError);
      bool has_low = false;
      EXPECT_LT(ErrorOfWeights(a, Product::Values::kWeights, &has_low), kSplitError);
      EXPECT_TRUE(has_low);
      for (float& value : a) value = ToFloat(ToBFloat16(value));
      EXPECT_LT(ErrorOfWeights(a, Product::Values::kWeights, &has_low), kSplitError);
      EXPECT_FALSE(has_low);
    }
  }
}

TEST_F(SymmetricProductTest, InputsOfLikeSizeAreTakenAsTheyAre_cuda) {
  SetInputs([](int64_t col) { return col % 2 == 0 ? 1.0 : 1.4; });
  layer_.weights = Upload(RandomRows(std::vector<float>(kRows, 1)));
  Product product =
      Product::Create(layer_, kRows, Product::Use::kOperand, ProductPrecision::kFloat32, *context_)
          .value();
  const float* columns = product.operand(Product::Values::kAny).columns;
  EXPECT_EQ(Download(columns, kCols), std::vector<float>(kCols, 1));
}

TEST_F(SymmetricProductTest, BelowFloat32OneProductIsTaken_cuda) {
  const std::vector<float> a = RandomRows({1, 1e-20F, 1e20F, 0, 3e-7F, 2e9F});
  for (const ProductPrecision precision : {ProductPrecision::kTf32, ProductPrecision::kBf16}) {
    const double error = ErrorOfRows(a, precision);
    EXPECT_LT(error, kHalfError);
    EXPECT_GT(error, 100 * kSplitError / 16) << "the parts beside it were taken, too";
  }
}

TEST_F(SymmetricProductTest, WeightsThatFitFloat16TakeTwoProductsAndOthersThree_cuda) {
  std::vector<float> weights = RandomRows(std::vector<float>(kRows, 0x1.0p33F));
  bool has_low = false;
  EXPECT_LT(ErrorOfWeights(weights, Product::Values::kWeights, &has_low), kSplitError);
  EXPECT_TRUE(has_low);
  for (float& weight : weights) weight = ToFloat(ToBFloat16(weight));
  weights[1] = 0x1.0p-8F;  // below the smallest float16: what it adds is lost in any float32 sum
  EXPECT_LT(ErrorOfWeights(weights, Product::Values::kWeights, &has_low), kSplitError);
  EXPECT_FALSE(has_low);
  EXPECT_LT(ErrorOfWeights(weights, Product::Values::kAny, &has_low), kSplitError);
  EXPECT_TRUE(has_low);
}

TEST(SymmetricProductBytesTest, Float64TakesNoPanelForRowsThatAreThereAlready) {
  using Float64 = SymmetricProduct<double>;
  EXPECT_EQ(Float64::Bytes(100, 64, Float64::Use::kRows), 0);
  EXPECT_EQ(Float64::Bytes(100, 64, Float64::Use::kOperand), 8 * 100 * 64);
}

}  // namespace
}  // namespace sparsefw::cuda
