#include "server/rpc/standard/health_service.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "absl/strings/str_format.h"
#include "server/rpc/convert/status_converter.h"
#include "server/rpc/runtime/call.h"

namespace sparsefw::server {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Check answers once; Watch answers again with every change, one write at a time.
class HealthCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, HealthCheckResponse>,
                         public std::enable_shared_from_this<HealthCall> {
 public:
  HealthCall(HealthService& service, const Connections* connections,
             grpc::CallbackServerContext* rpc, bool watch)
      : service_(service), rpc_(rpc), connection_(ConnectionOf(connections, *rpc)), watch_(watch) {}

  void Start() {
    self_ = shared_from_this();
    const absl::Status status = connection_->Enter();
    if (!service_.Add(self_)) return End(absl::UnavailableError("the server is draining"));
    if (!status.ok()) return End(status);
    MutexLock lock(mutex_);
    if (!ended_) StartRead(&wire_);
  }

  void OnReadDone(bool ok) override {
    const size_t size = wire_.Length();
    if (ok) connection_->Received(static_cast<int64_t>(size));
    grpc::ByteBuffer wire;
    wire_.Swap(&wire);
    // A watch keeps the name for as long as it likes.
    if (size > kMaxRequestBytes) {
      return End(absl::InvalidArgumentError(
          absl::StrFormat("a health check may have %d bytes; got %d", kMaxRequestBytes, size)));
    }
    HealthCheckRequest request;
    if (!ok || !grpc::SerializationTraits<HealthCheckRequest>::Deserialize(&wire, &request).ok()) {
      return End(absl::InvalidArgumentError("a health check needs a request"));
    }
    {
      MutexLock lock(mutex_);
      name_ = request.service();
      asked_ = true;
    }
    Update();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError(""));
    {
      MutexLock lock(mutex_);
      writing_ = false;
    }
    Update();
  }
  void OnCancel() override { End(absl::CancelledError("")); }
  void OnDone() override {
    {
      MutexLock lock(mutex_);
      rpc_ = nullptr;
    }
    connection_->Leave();
    service_.Remove(self_);
    const std::shared_ptr<HealthCall> self = std::move(self_);
  }

  // The status may have changed.
  void Update() {
    MutexLock lock(mutex_);
    if (!asked_ || ended_ || writing_) return;
    const HealthService::Status now = service_.StatusOf(name_);
    if (!watch_) {
      if (now == HealthCheckResponse::SERVICE_UNKNOWN) {
        return EndLocked(absl::NotFoundError(
            absl::StrFormat("no service is called \"%s\"", name_.substr(0, 100))));
      }
      ended_ = true;
      ended_at_ = std::chrono::steady_clock::now();
      response_.set_status(now);
      return StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    }
    if (response_.status() == now) return;
    response_.set_status(now);
    writing_ = true;
    StartWrite(&response_);
  }

  void EndIfLate(std::chrono::steady_clock::time_point now) {
    MutexLock lock(mutex_);
    if (ended_ && rpc_ != nullptr && now - ended_at_ > kUnreadEnd) rpc_->TryCancel();
    if (asked_ || now - begin_ < std::chrono::seconds(10)) return;
    EndLocked(absl::DeadlineExceededError("the request did not arrive within 10s"));
  }
  void End(const absl::Status& status) {
    MutexLock lock(mutex_);
    EndLocked(status);
  }

 private:
  // The longest name of a service is far shorter.
  static constexpr size_t kMaxRequestBytes = 512;

  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(ended_, true)) return;
    ended_at_ = std::chrono::steady_clock::now();
    Finish(ToGrpcStatus(status));
  }

  HealthService& service_;
  grpc::CallbackServerContext* rpc_ ABSL_GUARDED_BY(mutex_);  // null: it may be gone
  const std::shared_ptr<Connection> connection_;
  const bool watch_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::shared_ptr<HealthCall> self_;
  grpc::ByteBuffer wire_;
  Mutex mutex_;
  std::string name_ ABSL_GUARDED_BY(mutex_);
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point ended_at_ ABSL_GUARDED_BY(mutex_);
  HealthCheckResponse response_ ABSL_GUARDED_BY(mutex_);  // the last that was written
};

HealthService::HealthService(RpcContext& context) : context_(context) {
  const auto start = [this](grpc::CallbackServerContext* rpc, bool watch) {
    auto call = std::make_shared<HealthCall>(*this, context_.connections, rpc, watch);
    call->Start();
    return call.get();
  };
  AddBidi<grpc::ByteBuffer, HealthCheckResponse>(
      "/grpc.health.v1.Health/Check",
      [start](grpc::CallbackServerContext* rpc) { return start(rpc, false); });
  AddBidi<grpc::ByteBuffer, HealthCheckResponse>(
      "/grpc.health.v1.Health/Watch",
      [start](grpc::CallbackServerContext* rpc) { return start(rpc, true); });
}

HealthService::Status HealthService::StatusOf(std::string_view service) const {
  constexpr std::array<std::string_view, 3> kServices = {"", "sparsefw.v1.TensorService",
                                                         "sparsefw.v1.PruneService"};
  if (std::find(kServices.begin(), kServices.end(), service) == kServices.end()) {
    return HealthCheckResponse::SERVICE_UNKNOWN;
  }
  MutexLock lock(mutex_);
  return serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

bool HealthService::Add(const std::shared_ptr<HealthCall>& call) {
  MutexLock lock(mutex_);
  calls_.insert(call);
  return !closed_;
}

void HealthService::Remove(const std::shared_ptr<HealthCall>& call) {
  MutexLock lock(mutex_);
  calls_.erase(call);
}

std::set<std::shared_ptr<HealthCall>> HealthService::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

void HealthService::StopServing() {
  {
    MutexLock lock(mutex_);
    serving_ = false;
  }
  for (const auto& call : calls()) call->Update();
}

void HealthService::Tick() {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& call : calls()) call->EndIfLate(now);
}

void HealthService::Shutdown() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  for (const auto& call : calls()) call->End(absl::UnavailableError("the server is draining"));
}

}  // namespace sparsefw::server
