#include "server/tensors/store/stored_tensor.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

TensorInfo MakeInfo(const Origin& origin, const CompleteTensor& content, absl::Time create_time,
                    absl::Time expire_time) {
  TensorInfo info;
  info.name = "tensors/" + origin.id;
  info.spec = content.spec;
  info.byte_size = ByteSize(content.spec);
  info.crc32c = content.crc32c;
  info.create_time = create_time;
  info.expire_time = expire_time;
  info.owner = origin.owner;
  return info;
}

constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr auto kLookAtStop = std::chrono::milliseconds(20);  // where another caller checks

// Nothing when it was stopped.
absl::StatusOr<std::optional<uint32_t>> ChecksumOf(const SpoolFile& file, int64_t size,
                                                   const StopSignal* stop) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(size, kReadBytes)));
  uint32_t crc32c = 0;
  for (int64_t offset = 0; offset < size; offset += kReadBytes) {
    if (stop != nullptr && stop->requested()) return std::nullopt;
    const std::span<std::byte> part =
        std::span(buffer).first(static_cast<size_t>(std::min(kReadBytes, size - offset)));
    SPARSEFW_RETURN_IF_ERROR(file.Read(offset, part));
    crc32c = ExtendCrc32c(crc32c, part);
  }
  return crc32c;
}

}  // namespace

StoredTensor::StoredTensor(Origin origin, CompleteTensor content, int64_t number,
                           absl::Time create_time, absl::Time use_time, absl::Duration idle_ttl,
                           absl::Time expire_time)
    : origin_(std::move(origin)),
      info_(MakeInfo(origin_, content, create_time, expire_time)),
      content_(std::move(content)),
      number_(static_cast<uint64_t>(number)),
      idle_ttl_(idle_ttl),
      use_time_ns_(absl::ToUnixNanos(use_time)),
      unchecked_(content_.unchecked) {}

absl::Time StoredTensor::use_time() const {
  return absl::FromUnixNanos(use_time_ns_.load(std::memory_order_relaxed));
}

absl::Time StoredTensor::expire_time() const {
  return idle_ttl_ == absl::InfiniteDuration() ? info_.expire_time : use_time() + idle_ttl_;
}

void StoredTensor::Touch(absl::Time steady) {
  use_time_ns_.store(absl::ToUnixNanos(steady), std::memory_order_relaxed);
}

TensorInfo StoredTensor::Info() const {
  TensorInfo info = info_;
  info.expire_time = expire_time();
  info.reference_count = references();
  return info;
}

absl::Status StoredTensor::CheckValues(absl::FunctionRef<absl::Status()> check) const {
  MutexLock lock(check_mutex_);
  if (!checked_.has_value()) checked_ = check();
  return *checked_;
}

absl::Status StoredTensor::CheckBytes(const StopSignal* stop) const {
  const auto stopped = [] { return absl::CancelledError("the check was stopped"); };
  {
    MutexLock lock(bytes_mutex_);
    while (checking_) {
      if (stop != nullptr && stop->requested()) return stopped();
      bytes_checked_.WaitFor(bytes_mutex_, kLookAtStop);
    }
    if (!unchecked_.load(std::memory_order_relaxed)) return bytes_;
    checking_ = true;
  }
  const absl::Cleanup done = [this] {
    MutexLock lock(bytes_mutex_);
    checking_ = false;
    bytes_checked_.NotifyAll();
  };
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<uint32_t> crc32c,
                            ChecksumOf(*content_.file, info_.byte_size, stop));
  if (!crc32c.has_value()) return stopped();
  MutexLock lock(bytes_mutex_);
  if (*crc32c != info_.crc32c) {
    bytes_ = Refuse(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT",
                    "%s must have the checksum 0x%08x that it was stored with; its file has "
                    "0x%08x",
                    info_.name, info_.crc32c, *crc32c);
  }
  unchecked_.store(false, std::memory_order_release);
  return bytes_;
}

void StoredTensor::MarkCorrupt(absl::Status why) {
  MutexLock lock(bytes_mutex_);
  bytes_ = std::move(why);
  unchecked_.store(false, std::memory_order_release);
}

absl::StatusOr<std::shared_ptr<const MappedBytes>> StoredTensor::Map() const {
  MutexLock lock(map_mutex_);
  if (auto mapped = mapped_.lock()) return mapped;
  SPARSEFW_ASSIGN_OR_RETURN(MappedBytes mapped, content_.file->Map());
  auto shared = std::make_shared<const MappedBytes>(std::move(mapped));
  mapped_ = shared;
  return shared;
}

absl::StatusOr<std::shared_ptr<const TensorHandle>> StoredTensor::Open(
    std::shared_ptr<const StoredTensor> tensor, const StopSignal* stop) {
  SPARSEFW_RETURN_IF_ERROR(tensor->CheckBytes(stop));
  SPARSEFW_ASSIGN_OR_RETURN(auto mapped, tensor->Map());
  return std::make_shared<const TensorHandle>(std::move(tensor), std::move(mapped));
}

TensorHandle::TensorHandle(std::shared_ptr<const StoredTensor> tensor,
                           std::shared_ptr<const MappedBytes> mapped)
    : tensor_(std::move(tensor)), info_(tensor_->Info()), mapped_(std::move(mapped)) {}

std::span<const std::byte> TensorHandle::bytes() const { return mapped_->bytes(); }

ConstMatrixView TensorHandle::matrix() const {
  if (info_.spec.dtype == DType::kBool) return ConstMatrixView();
  return ConstMatrixView(bytes().data(), info_.spec.dtype, info_.spec.rows, info_.spec.cols);
}

absl::StatusOr<Mask> TensorHandle::mask() const {
  return Mask::FromBytes(info_.spec.rows, info_.spec.cols, bytes());
}

absl::Status TensorHandle::CheckValues(absl::FunctionRef<absl::Status()> check) const {
  return tensor_->CheckValues(check);
}

}  // namespace sparsefw::server
