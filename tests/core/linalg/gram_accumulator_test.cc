// Both accumulators, the CPU's and the reference's.
#include "core/src/linalg/gram_accumulator.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/src/reference/reference_engine.h"
#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/gram.h"
#include "sparsefw/status_macros.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

// The sanitizers' allocators abort otherwise where malloc returns null.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace sparsefw {
namespace {

using ::absl::StatusCode;
using ::sparsefw::testing::GramOf;
using ::sparsefw::testing::LayerOptions;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

Matrix<float> Activations(int64_t tokens, int64_t d_in, uint64_t seed) {
  return std::move(
      MakeRandomLayer({.rows = 1, .cols = d_in, .tokens = tokens, .seed = seed}).activations);
}

// |a - b| <= tolerance * sqrt(b_ii b_jj): relative to the largest that b_ij could be.
void ExpectClose(const Matrix<double>& a, const Matrix<double>& b, double tolerance) {
  ASSERT_EQ(a.rows(), b.rows());
  for (int64_t i = 0; i < a.rows(); ++i) {
    for (int64_t j = 0; j < a.cols(); ++j) {
      ASSERT_NEAR(a(i, j), b(i, j), tolerance * std::sqrt(b(i, i) * b(j, j))) << i << ", " << j;
    }
  }
}

struct Maker {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<GramAccumulator>>(int64_t, int)> make;
  double tolerance;  // of products in its precision
};

absl::StatusOr<std::unique_ptr<GramAccumulator>> MakeOnCuda(int64_t d_in, int threads) {
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend("cuda"));
  return backend->CreateGramAccumulator(d_in, threads);
}

class GramAccumulatorTest : public ::testing::TestWithParam<Maker> {
 protected:
  void SetUp() override {
    if (GetParam().name == "cuda") SPARSEFW_NEED_DEVICE(testing::EngineKind::kCudaFloat32);
  }

  std::unique_ptr<GramAccumulator> Make(int64_t d_in, int threads = 0) const {
    auto made = GetParam().make(d_in, threads);
    EXPECT_THAT(made, testing::IsOk());
    return std::move(made).value();
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, GramAccumulatorTest,
    ::testing::Values(
        Maker{"cpu", CpuGramAccumulator::Create, 2e-6},
        Maker{"reference",
              [](int64_t d_in, int threads) {
                return ReferenceBackend().CreateGramAccumulator(d_in, threads);
              },
              1e-13},
        Maker{"cuda", [](int64_t d_in, int threads) { return MakeOnCuda(d_in, threads); }, 2e-6}),
    [](const auto& parameter) { return parameter.param.name; });

TEST_P(GramAccumulatorTest, IsTheGramOfEveryDTypeAndStride) {
  const Matrix<float> x = Activations(37, 19, 1);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const TypedMatrix typed(x.view(), dtype, 3);
    const auto gram = Make(19);
    SPARSEFW_ASSERT_OK(gram->Add(typed.view()));
    EXPECT_EQ(gram->token_count(), 37);
    EXPECT_EQ(gram->d_in(), 19);
    ExpectClose(*gram->Snapshot(), GramOf(typed.view()), GetParam().tolerance);
  }
}

// 1024 squares of less than 2^58 are finite in float32.
TEST_P(GramAccumulatorTest, ActivationsWhoseSquaresWouldNotBeFiniteAreRefused) {
  const auto gram = Make(2);
  Matrix<float> x(1024, 2);
  std::fill_n(x.data(), x.size(), std::nextafter(0x1.0p58F, 0.0F));
  SPARSEFW_ASSERT_OK(gram->Add(x.view()));
  EXPECT_NEAR((*gram->Snapshot())(0, 1), 0x1.0p126, 0x1.0p108);
  Matrix<float> one(8, 2);
  one(7, 1) = -0x1.0p58F;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    EXPECT_THAT(gram->Add(TypedMatrix(one.view(), dtype).view()),
                StatusIs(kInvalid, "NON_FINITE", "activations[1031, 1]=-2.88", "below 2.9e+17"));
  }
  EXPECT_EQ(gram->token_count(), 1024);
}

TEST_P(GramAccumulatorTest, TilesAndTokenBlocksMeet) {
  // Beyond a tile of columns and a block of tokens.
  const Matrix<float> x = Activations(1100, 530, 2);
  const auto gram = Make(530);
  SPARSEFW_ASSERT_OK(gram->Add(TypedMatrix(x.view(), DType::kF16).view()));
  ExpectClose(*gram->Snapshot(), GramOf(TypedMatrix(x.view(), DType::kF16).view()),
              GetParam().tolerance);
}

TEST_P(GramAccumulatorTest, SnapshotIsExactlySymmetric) {
  const auto gram = Make(70);
  SPARSEFW_ASSERT_OK(gram->Add(Activations(20, 70, 3).view()));
  const Matrix<double> snapshot = *gram->Snapshot();
  for (int64_t i = 0; i < 70; ++i) {
    for (int64_t j = 0; j < i; ++j) ASSERT_EQ(snapshot(i, j), snapshot(j, i));
  }
}

TEST_P(GramAccumulatorTest, RowsInBlocksAreTheSnapshot) {
  constexpr int64_t kDIn = 150;
  const auto gram = Make(kDIn);
  SPARSEFW_ASSERT_OK(gram->Add(Activations(20, kDIn, 8).view()));
  const Matrix<double> whole = *gram->Snapshot();
  for (const int64_t block : {int64_t{1}, int64_t{7}, int64_t{64}, kDIn}) {
    for (int64_t first = 0; first < kDIn; first += block) {
      const int64_t count = std::min(block, kDIn - first);
      std::vector<double> rows(static_cast<size_t>(count * kDIn));
      SPARSEFW_ASSERT_OK(gram->CopyRows(first, count, rows.data()));
      ASSERT_TRUE(std::equal(rows.begin(), rows.end(), whole.row(first))) << first << "+" << count;
    }
  }
}

TEST_P(GramAccumulatorTest, OrderAndSizeOfChunksHardlyMatter) {
  const Matrix<float> x = Activations(300, 24, 4);
  const auto whole = Make(24);
  SPARSEFW_ASSERT_OK(whole->Add(x.view()));
  const auto pieces = Make(24);
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {200, 100}, {0, 1}, {1, 150}, {151, 0}, {151, 49}}) {
    SPARSEFW_ASSERT_OK(pieces->Add(x.view().Rows(first, count)));
  }
  EXPECT_EQ(pieces->token_count(), 300);
  ExpectClose(*pieces->Snapshot(), *whole->Snapshot(), GetParam().tolerance);
}

// Over a network come chunks of any size.
TEST(CpuGramAccumulatorTest, WhereChunksEndChangesNoBit) {
  const Matrix<float> x = Activations(2 * kGramBlockTokens + 300, 40, 9);
  const auto sum_of = [&](DType dtype, const std::vector<int64_t>& counts) {
    const TypedMatrix typed(x.view(), dtype, 3);
    const auto gram = CpuGramAccumulator::Create(40, 2);
    int64_t first = 0;
    for (const int64_t count : counts) {
      SPARSEFW_EXPECT_OK((*gram)->Add(typed.view().Rows(first, count)));
      first += count;
    }
    EXPECT_EQ(first, x.rows());
    return *(*gram)->Snapshot();
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Matrix<double> whole = sum_of(dtype, {x.rows()});
    for (const auto& counts :
         std::vector<std::vector<int64_t>>{{1, kGramBlockTokens, kGramBlockTokens + 299},
                                           {kGramBlockTokens - 1, 1, kGramBlockTokens, 300},
                                           {kGramBlockTokens, 0, 2, kGramBlockTokens - 2, 300},
                                           {300, 2 * kGramBlockTokens}}) {
      const Matrix<double> pieces = sum_of(dtype, counts);
      EXPECT_TRUE(std::equal(whole.data(), whole.data() + whole.size(), pieces.data()));
    }
  }
}

std::vector<std::byte> StateOf(GramAccumulator& gram) {
  std::vector<std::byte> state;
  SPARSEFW_EXPECT_OK(gram.SaveState([&](std::span<const std::byte> bytes) {
    state.insert(state.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }));
  EXPECT_LE(static_cast<int64_t>(state.size()), GramStateBytes(gram.d_in()));
  return state;
}

absl::Status Restore(GramAccumulator& gram, std::span<const std::byte> state) {
  return gram.RestoreState([&state](std::span<std::byte> bytes) {
    if (bytes.size() > state.size()) return absl::DataLossError("the state is too short");
    std::copy_n(state.begin(), bytes.size(), bytes.begin());
    state = state.subspan(bytes.size());
    return absl::OkStatus();
  });
}

// Interrupted at random tokens, each time by the end of the process.
TEST_P(GramAccumulatorTest, ARestoredStateGoesOnWithTheSameBits) {
  constexpr int64_t kDIn = 37;
  const Matrix<float> x = Activations(2 * kGramBlockTokens + 300, kDIn, 11);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const TypedMatrix typed(x.view(), dtype, 3);
    const auto whole = Make(kDIn);
    SPARSEFW_ASSERT_OK(whole->Add(typed.view()));
    const Matrix<double> expected = *whole->Snapshot();
    const uint64_t seeds = GetParam().name == "cuda" ? 4 : 12;  // slow where it is emulated
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Random random(seed);
      auto gram = Make(kDIn);
      for (int64_t first = 0; first < x.rows();) {
        const int64_t most = seed % 3 == 0 ? 50 : 1500;
        const int64_t count = std::min(x.rows() - first, 1 + random.Below(most));
        SPARSEFW_ASSERT_OK(gram->Add(typed.view().Rows(first, count)));
        first += count;
        if (random.Below(3) != 0) continue;
        const std::vector<std::byte> state = StateOf(*gram);
        EXPECT_EQ(StateOf(*gram), state) << "saving changes nothing";
        gram = Make(kDIn);
        SPARSEFW_ASSERT_OK(Restore(*gram, state));
        EXPECT_EQ(gram->token_count(), first);
      }
      const Matrix<double> got = *gram->Snapshot();
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), expected.span().size_bytes()), 0);
    }
  }
}

// A server without room on its device goes on there, and back.
TEST_P(GramAccumulatorTest, TheCpuGoesOnWithAStateAndGivesItBack) {
  constexpr int64_t kDIn = 37;
  constexpr double kClose = 1e-5;  // that of the CPU
  const Matrix<float> x = Activations(kGramBlockTokens + 700, kDIn, 11);
  const auto first = Make(kDIn);
  SPARSEFW_ASSERT_OK(first->Add(x.view().Rows(0, kGramBlockTokens + 100)));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto second,
                                (*FindBackend("cpu"))->CreateGramAccumulator(kDIn, 1));
  SPARSEFW_ASSERT_OK(Restore(*second, StateOf(*first)));
  SPARSEFW_ASSERT_OK(second->Add(x.view().Rows(kGramBlockTokens + 100, 300)));
  ExpectClose(*second->Snapshot(), GramOf(x.view().Rows(0, kGramBlockTokens + 400)), kClose);
  if (GetParam().name == "reference") return;  // it takes no tokens that wait
  const auto third = Make(kDIn);
  SPARSEFW_ASSERT_OK(Restore(*third, StateOf(*second)));
  SPARSEFW_ASSERT_OK(third->Add(x.view().Rows(kGramBlockTokens + 400, 300)));
  EXPECT_EQ(third->token_count(), x.rows());
  ExpectClose(*third->Snapshot(), GramOf(x.view()), kClose);
}

TEST_P(GramAccumulatorTest, AStateOfSomethingElseIsRefused) {
  const auto gram = Make(6);
  SPARSEFW_ASSERT_OK(gram->Add(Activations(5, 6, 7).view()));
  std::vector<std::byte> state = StateOf(*gram);
  EXPECT_THAT(Restore(*Make(7), state), StatusIs(kInvalid, "GRAM_STATE_INVALID", "d_in=7"));
  EXPECT_THAT(Restore(*Make(6), std::span(state).first(60)), StatusIs(StatusCode::kDataLoss));
  state[0] ^= std::byte{1};
  EXPECT_THAT(Restore(*Make(6), state), StatusIs(kInvalid, "GRAM_STATE_INVALID"));
}

TEST_P(GramAccumulatorTest, ASnapshotInBetweenChangesHardlyAnything) {
  const Matrix<float> x = Activations(500, 24, 4);
  const auto whole = Make(24);
  SPARSEFW_ASSERT_OK(whole->Add(x.view()));
  const auto looked_at = Make(24);
  SPARSEFW_ASSERT_OK(looked_at->Add(x.view().Rows(0, 123)));
  ExpectClose(*looked_at->Snapshot(), GramOf(x.view().Rows(0, 123)), GetParam().tolerance);
  const Matrix<double> again = *looked_at->Snapshot();
  ExpectClose(again, GramOf(x.view().Rows(0, 123)), GetParam().tolerance);
  SPARSEFW_ASSERT_OK(looked_at->Add(x.view().Rows(123, 377)));
  ExpectClose(*looked_at->Snapshot(), *whole->Snapshot(), GetParam().tolerance);
}

// The argument for 10^6 tokens: a sum in fp32 drifts with the number of
// chunks, one in float64 does not. Offsets make every term of one sign, the
// worst case: an fp32 sum of these is wrong by 1e-4 already.
TEST_P(GramAccumulatorTest, ManyChunksLoseNothing) {
  constexpr int64_t kChunks = 4000;
  Random random(5);
  Matrix<float> chunk(8, 3);
  for (float& value : chunk.span()) value = 1 + 0.01F * static_cast<float>(random.Normal());
  const Matrix<double> once = GramOf(chunk.view());
  const auto gram = Make(3);
  for (int64_t i = 0; i < kChunks; ++i) SPARSEFW_ASSERT_OK(gram->Add(chunk.view()));
  Matrix<double> expected(3, 3);
  float in_fp32 = 0;
  for (int64_t i = 0; i < 9; ++i) expected.data()[i] = kChunks * once.data()[i];
  for (int64_t i = 0; i < kChunks * 8; ++i) in_fp32 += chunk(i % 8, 0) * chunk(i % 8, 0);
  // Products of one block of tokens are float32, and equal chunks round the same way each time: the
  // order in which the processor's BLAS kernel adds decides how far, at most half of what the plain
  // float32 sum below loses.
  ExpectClose(*gram->Snapshot(), expected, 5e-6);
  EXPECT_EQ(gram->token_count(), 8 * kChunks);
  EXPECT_GT(std::fabs(static_cast<double>(in_fp32) - expected(0, 0)), 1e-5 * expected(0, 0));
}

TEST_P(GramAccumulatorTest, PartialGramsAdd) {
  const Matrix<float> x = Activations(60, 10, 6);
  const auto whole = Make(10);
  SPARSEFW_ASSERT_OK(whole->Add(x.view()));
  const auto part = Make(10);
  SPARSEFW_ASSERT_OK(part->Add(x.view().Rows(0, 25)));
  const auto sum = Make(10);
  SPARSEFW_ASSERT_OK(sum->Add(x.view().Rows(25, 35)));
  const Matrix<double> other = *part->Snapshot();
  SPARSEFW_ASSERT_OK(sum->AddGram(TypedMatrix(other.view(), DType::kF64, 2).view(), 25));
  EXPECT_EQ(sum->token_count(), 60);
  ExpectClose(*sum->Snapshot(), *whole->Snapshot(), GetParam().tolerance);
}

TEST_P(GramAccumulatorTest, PartialGramsAreSymmetrised) {
  Matrix<float> other(2, 2);
  other(0, 0) = other(1, 1) = 1000;
  other(0, 1) = 10;
  other(1, 0) = 10.5F;
  const auto gram = Make(2);
  SPARSEFW_ASSERT_OK(gram->AddGram(other.view(), 7));
  const Matrix<double> snapshot = *gram->Snapshot();
  EXPECT_EQ(snapshot(0, 1), 10.25);
  EXPECT_EQ(snapshot(1, 0), 10.25);
  EXPECT_EQ(snapshot(0, 0), 1000);
}

TEST_P(GramAccumulatorTest, AnErrorLeavesTheSumAsItWas) {
  const Matrix<float> x = Activations(5, 6, 7);
  const auto gram = Make(6);
  SPARSEFW_ASSERT_OK(gram->Add(x.view()));
  const Matrix<double> before = *gram->Snapshot();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    TypedMatrix bad(x.view(), dtype);
    bad.Set(4, 0, std::nan(""));
    bad.Set(3, 2, -std::numeric_limits<double>::infinity());
    // Token 3 of the second chunk is token 8 of the accumulation.
    EXPECT_THAT(gram->Add(bad.view()),
                StatusIs(kInvalid, "NON_FINITE", "activations[8, 2]", "-inf"));
  }
  EXPECT_THAT(gram->Add(Activations(5, 7, 7).view()),
              StatusIs(kInvalid, "SHAPE_MISMATCH", "[tokens, 6]", "[5, 7]"));
  EXPECT_THAT(gram->Add(TypedMatrix(x.view(), DType::kF64).view()),
              StatusIs(kInvalid, "DTYPE_UNSUPPORTED", "activations", "F64"));

  Matrix<double> partial(6, 6);
  EXPECT_THAT(gram->AddGram(partial.view(), -1),
              StatusIs(kInvalid, "OPTION_INVALID", "token_count", "-1"));
  EXPECT_THAT(gram->AddGram(Matrix<double>(5, 5).view(), 1),
              StatusIs(kInvalid, "SHAPE_MISMATCH", "gram must be [6, 6]", "[5, 5]"));
  partial(2, 2) = -1;
  EXPECT_THAT(gram->AddGram(partial.view(), 1),
              StatusIs(kInvalid, "GRAM_NEGATIVE_DIAGONAL", "gram[2, 2]=-1"));
  partial(2, 2) = 1;
  partial(0, 1) = 1;
  EXPECT_THAT(gram->AddGram(partial.view(), 1), StatusIs(kInvalid, "GRAM_ASYMMETRIC"));
  partial(0, 1) = std::nan("");
  EXPECT_THAT(gram->AddGram(partial.view(), 1), StatusIs(kInvalid, "NON_FINITE", "gram[0, 1]"));

  const Matrix<double> after = *gram->Snapshot();
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.span().size_bytes()), 0);
  EXPECT_EQ(gram->token_count(), 5);
}

TEST_P(GramAccumulatorTest, SameBitsOnAnyNumberOfThreads) {
  const Matrix<float> x = Activations(64, 600, 8);
  const auto one = Make(600, 1);
  const auto many = Make(600, 0);
  SPARSEFW_ASSERT_OK(one->Add(x.view()));
  SPARSEFW_ASSERT_OK(many->Add(x.view()));
  const Matrix<double> a = *one->Snapshot();
  const Matrix<double> b = *many->Snapshot();
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.span().size_bytes()), 0);
}

TEST_P(GramAccumulatorTest, RefusesSizes) {
  EXPECT_THAT(GetParam().make(0, 0), StatusIs(kInvalid, "SHAPE_MISMATCH", "d_in", "0"));
  // 8 * 2^52 bytes: more than any address space gives.
  EXPECT_THAT(GetParam().make(int64_t{1} << 26, 0),
              StatusIs(StatusCode::kResourceExhausted, "OUT_OF_MEMORY", "d_in=67108864"));
  // 8 * 2^66 bytes: more than 64 bits count.
  EXPECT_THAT(GetParam().make(int64_t{1} << 33, 0),
              StatusIs(StatusCode::kResourceExhausted, "OUT_OF_MEMORY"));
  for (const int threads : {-5, 70000}) {
    if (GetParam().name == "cuda") break;  // threads of the host change nothing there
    EXPECT_THAT(GetParam().make(4, threads),
                StatusIs(kInvalid, "OPTION_INVALID", "threads must be in [0, 1024]"));
  }
}

}  // namespace
}  // namespace sparsefw
