// The tensor store over any spool.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_SPOOLED_TENSOR_STORE_H_
#define SPARSEFW_SERVER_TENSORS_STORE_SPOOLED_TENSOR_STORE_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/store/byte_budget.h"
#include "server/tensors/store/request_index.h"
#include "server/tensors/store/tensor_table.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Locks: an upload's, then this store's; the store's is held for table
// look-ups only, never while the disk is touched or an upload is called.
class SpooledTensorStore final : public TensorStore, private Upload::Owner {
 public:
  using Created = std::variant<UploadInfo, TensorInfo>;

  // Errors: InvalidArgument (OPTION_INVALID)
  static absl::StatusOr<std::unique_ptr<TensorStore>> Create(TensorStoreOptions options,
                                                             std::shared_ptr<Spool> spool);

  absl::StatusOr<Created> CreateUpload(const TensorSpec& spec, std::string_view request_id,
                                       std::string_view owner) override;
  absl::StatusOr<Created> CreateGramUpload(const GramSpec& spec, std::string_view request_id,
                                           std::string_view owner) override;
  absl::StatusOr<int64_t> Write(std::string_view upload, int64_t offset,
                                std::span<const std::byte> data, uint32_t crc32c) override;
  absl::StatusOr<int64_t> Accumulate(std::string_view upload, int64_t token_offset,
                                     std::span<const std::byte> data, uint32_t crc32c) override;
  absl::StatusOr<TensorInfo> Finish(std::string_view upload,
                                    std::optional<uint32_t> total_crc32c) override;
  absl::StatusOr<UploadInfo> GetUpload(std::string_view name) override;
  absl::Status DeleteUpload(std::string_view name) override;
  absl::StatusOr<ByteBudget::Reservation> ReserveRoom(int64_t bytes) override {
    return Reserve("the results of one job", bytes);
  }
  absl::StatusOr<TensorInfo> Put(const TensorSpec& spec, std::span<const std::byte> bytes,
                                 std::string_view owner, absl::Time expire_time,
                                 ByteBudget::Reservation* room) override;
  absl::StatusOr<TensorInfo> GetTensor(std::string_view name) override;
  absl::StatusOr<std::shared_ptr<const TensorHandle>> Acquire(std::string_view name) override;
  absl::Status DeleteTensor(std::string_view name) override;
  absl::StatusOr<Page> ListTensors(int page_size, std::string_view page_token) override;
  void CollectGarbage() override;
  TensorStoreUsage usage() const override;

 private:
  struct Request;
  static constexpr std::string_view kWhatIsMade = "what a tensor needs while it is made";

  SpooledTensorStore(TensorStoreOptions options, std::shared_ptr<Spool> spool,
                     std::string token_salt);

  // Upload::Owner
  TensorInfo Publish(const Upload& upload, CompleteTensor tensor) override;
  void Forget(const Upload& upload) override;
  absl::Time Now() const override { return options_.now(); }

  absl::StatusOr<Created> CreateAny(const Request& request);
  absl::StatusOr<std::variant<std::shared_ptr<Upload>, TensorInfo>> FindOrAdd(
      const Request& request);
  std::unique_ptr<UploadContent> MakeContent(const Request& request, const std::string& id,
                                             ByteBudget::Reservation reservation) const;
  absl::StatusOr<ByteBudget::Reservation> Reserve(std::string_view what, int64_t bytes);
  absl::Status CheckRoomForOne() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::StatusOr<std::shared_ptr<Upload>> FindUpload(std::string_view name);
  absl::StatusOr<TensorInfo> FinishedBefore(std::string_view upload,
                                            std::optional<uint32_t> total_crc32c);

  const TensorStoreOptions options_;
  const std::shared_ptr<Spool> spool_;
  const std::shared_ptr<ByteBudget> budget_;
  const std::string token_salt_;

  mutable Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mutex_);
  TensorTable tensors_ ABSL_GUARDED_BY(mutex_);
  RequestIndex requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_SPOOLED_TENSOR_STORE_H_
