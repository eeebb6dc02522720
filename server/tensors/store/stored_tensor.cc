#include "server/tensors/store/stored_tensor.h"

#include "server/tensors/spec.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

class Reference {
 public:
  explicit Reference(std::shared_ptr<StoredTensor> tensor) : tensor_(std::move(tensor)) {}
  Reference(Reference&&) = default;
  Reference& operator=(Reference&&) = delete;
  ~Reference() {
    if (tensor_ != nullptr) tensor_->DropReference();
  }
  const StoredTensor& tensor() const { return *tensor_; }

 private:
  std::shared_ptr<StoredTensor> tensor_;
};

class Handle final : public TensorHandle {
 public:
  Handle(Reference reference, MappedBytes mapped)
      : reference_(std::move(reference)),
        info_(reference_.tensor().Info()),
        mapped_(std::move(mapped)) {}

  const TensorInfo& info() const override { return info_; }
  std::span<const std::byte> bytes() const override { return mapped_.bytes(); }

  ConstMatrixView matrix() const override {
    const std::optional<DType> dtype = MatrixDType(info_.spec.dtype);
    if (!dtype) return ConstMatrixView();
    return ConstMatrixView(bytes().data(), *dtype, info_.spec.rows, info_.spec.cols);
  }

  absl::StatusOr<Mask> mask() const override {
    return Mask::FromBytes(info_.spec.rows, info_.spec.cols, bytes());
  }

  absl::Status CheckValues(absl::FunctionRef<absl::Status()> check) const override {
    return reference_.tensor().CheckValues(check);
  }

 private:
  const Reference reference_;  // released last: after the bytes are unmapped
  const TensorInfo info_;
  const MappedBytes mapped_;
};

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

}  // namespace

StoredTensor::StoredTensor(Origin origin, CompleteTensor content, absl::Time create_time,
                           absl::Time expire_time)
    : origin_(std::move(origin)),
      info_(MakeInfo(origin_, content, create_time, expire_time)),
      content_(std::move(content)) {}

TensorInfo StoredTensor::Info() const {
  TensorInfo info = info_;
  info.reference_count = references();
  return info;
}

absl::Status StoredTensor::CheckValues(absl::FunctionRef<absl::Status()> check) const {
  MutexLock lock(check_mutex_);
  if (!checked_.has_value()) checked_ = check();
  return *checked_;
}

absl::StatusOr<std::shared_ptr<const TensorHandle>> StoredTensor::Hold(
    std::shared_ptr<StoredTensor> tensor) {
  const StoredTensor& held = *tensor;
  Reference reference(std::move(tensor));
  SPARSEFW_ASSIGN_OR_RETURN(MappedBytes mapped, held.content_.file->Map());
  return std::make_shared<const Handle>(std::move(reference), std::move(mapped));
}

}  // namespace sparsefw::server
