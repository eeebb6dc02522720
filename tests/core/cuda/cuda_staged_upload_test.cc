// Copies through pinned memory.
#include <numeric>
#include <thread>
#include <vector>

#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/runtime/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/status_macros.h"
#include "tests/cuda_on_host/control.h"
#include "tests/testing/matchers.h"

namespace sparsefw::cuda {
namespace {

using testing::IsOk;
using testing::StatusIs;

// Every value says where it stands.
Matrix<float> Numbered(int64_t rows, int64_t cols) {
  Matrix<float> matrix(rows, cols);
  std::iota(matrix.data(), matrix.data() + matrix.size(), 1.0F);
  return matrix;
}

struct Target {
  Stream stream;
  DeviceBuffer<float> memory;
};

absl::StatusOr<Target> MakeTarget(int64_t size) {
  Target target;
  SPARSEFW_ASSIGN_OR_RETURN(target.stream, CreateStream());
  SPARSEFW_ASSIGN_OR_RETURN(target.memory, DeviceBuffer<float>::Zeroed(size, target.stream.get()));
  return target;
}

// `target` as rows of `stride`, of which `cols` count.
std::vector<float> Read(const Target& target, int64_t rows, int64_t cols, int64_t stride) {
  std::vector<float> values(static_cast<size_t>(rows * cols));
  EXPECT_EQ(cudaMemcpy2DAsync(values.data(), static_cast<size_t>(cols) * sizeof(float),
                              target.memory.data(), static_cast<size_t>(stride) * sizeof(float),
                              static_cast<size_t>(cols) * sizeof(float), static_cast<size_t>(rows),
                              cudaMemcpyDeviceToHost, target.stream.get()),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(target.stream.get()), cudaSuccess);
  return values;
}

std::vector<float> Plain(ConstMatrixView matrix) {
  std::vector<float> values;
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    values.insert(values.end(), matrix.row<float>(row), matrix.row<float>(row) + matrix.cols());
  }
  return values;
}

void ExpectArrives(ConstMatrixView matrix, int64_t stride) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Target target, MakeTarget(matrix.rows() * stride));
  float* const to = const_cast<float*>(target.memory.data());
  ASSERT_THAT(
      StagedUpload(matrix, to, static_cast<size_t>(stride) * sizeof(float), target.stream.get()),
      IsOk());
  EXPECT_EQ(Read(target, matrix.rows(), matrix.cols(), stride), Plain(matrix));
}

TEST(StagedUploadTest, LessThanAPieceAndManyPiecesArriveInFull) {
  ExpectArrives(Numbered(1, 1).view(), 1);
  ExpectArrives(Numbered(3, 5).view(), 5);
  // Three pieces of which the last is not full.
  const int64_t rows = 5 * kStagingBytes / 4 / 1000 / 4;
  ExpectArrives(Numbered(rows, 1000).view(), 1000);
}

TEST(StagedUploadTest, RowsMayHaveGapsOnEitherSide) {
  const Matrix<float> matrix = Numbered(2000, 700);
  const ConstMatrixView part(matrix.row(0) + 3, DType::kF32, 2000, 600, 700);
  ExpectArrives(part, 600);
  ExpectArrives(part, 640);
}

TEST(StagedUploadTest, RowsLongerThanAPieceGoInParts) {
  const int64_t cols = kStagingBytes / 2 / 4 + 5;
  ExpectArrives(Numbered(2, cols).view(), cols);
  ExpectArrives(Numbered(2, cols).view(), cols + 3);
}

// A field of a checkpoint is one row, of 2 GiB and more in large layers.
TEST(StagedUploadTest, OneRowMayBeWiderThanAPitchMayBe) {
  const Matrix<float> matrix = Numbered(1, 16);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(Target target, MakeTarget(16));
  EXPECT_THAT(
      StagedUpload(matrix.view(), target.memory.data(), size_t{1} << 31, target.stream.get()),
      IsOk());
  EXPECT_EQ(Read(target, 1, 16, 16), Plain(matrix.view()));
}

TEST(StagedUploadTest, AnEmptyMatrixIsNoCopy) {
  if (!cuda_on_host::Emulated()) GTEST_SKIP() << "copies are counted by the emulation alone";
  const int64_t before = cuda_on_host::CopiedToDevice();
  const ConstMatrixView empty(nullptr, DType::kF32, 0, 7);
  EXPECT_THAT(StagedUpload(empty, nullptr, nullptr), IsOk());
  EXPECT_EQ(cuda_on_host::CopiedToDevice(), before);
}

TEST(StagedUploadTest, ManyThreadsShareThePinnedMemory) {
  const Matrix<float> matrix = Numbered(3000, 1000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&matrix] { ExpectArrives(matrix.view(), 1000); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StagedUploadTest, StopsBetweenPiecesAndCanGoOnAfterwards) {
  const Matrix<float> matrix = Numbered(16, 16);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(Target target, MakeTarget(matrix.size()));
  StopSignal stop;
  stop.Request();
  EXPECT_THAT(StagedUpload(matrix.view(), target.memory.data(), target.stream.get(), &stop),
              StatusIs(absl::StatusCode::kCancelled));
  ExpectArrives(matrix.view(), 16);
}

TEST(StagedUploadTest, SaysWhatGoesWrongOnTheDevice) {
  if (!cuda_on_host::Emulated()) GTEST_SKIP() << "faults are those of the emulation";
  const Matrix<float> matrix = Numbered(16, 16);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(Target target, MakeTarget(matrix.size()));
  for (int64_t calls = 1; calls <= 3; ++calls) {
    cuda_on_host::SetFault(cudaErrorIllegalAddress, calls);
    const absl::Status failed =
        StagedUpload(matrix.view(), target.memory.data(), target.stream.get());
    cuda_on_host::SetFault(cudaSuccess);
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, "DEVICE_LOST"));
  }
  ExpectArrives(matrix.view(), 16);
}

}  // namespace
}  // namespace sparsefw::cuda
