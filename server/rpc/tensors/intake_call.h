// The input half of every call in which the client streams chunks.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_INTAKE_CALL_H_
#define SPARSEFW_SERVER_RPC_TENSORS_INTAKE_CALL_H_

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "server/rpc/runtime/call.h"
#include "server/rpc/runtime/staged_stream.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

// Messages are read as the staging budget allows and handled in order on one
// strand of the executor. `Reactor` is gRPC's class with StartRead. The derived
// class uses its members from Take, TakeEnd and CleanUp without a lock.
template <typename Reactor, typename Request>
class IntakeCall : public Reactor, public Call, private StagedStream<Request>::Owner {
 public:
  void Start() {
    if (!Open()) return;
    if (const absl::Status status = context().registry->Admit(); !status.ok()) {
      return Close(status);
    }
    stream_.SetCaller(sharer());
    Opened();
    stream_.Read();
  }

  void OnReadDone(bool ok) override {
    EndTurn();
    ReadEnds();
    if (!ok) {  // the client has closed its half
      return Post([this] {
        if (IsClosed()) return;
        if (const absl::Status status = TakeEnd(); !status.ok()) Close(status);
      });
    }
    const Request& request = stream_.incoming();
    share().Received(static_cast<int64_t>(request.ByteSizeLong()));
    const int64_t bytes = DataBytes(request);
    context().metrics->BytesReceived(method(), bytes);
    absl::StatusOr<HeldBytes> held = share().Hold(static_cast<int64_t>(request.SpaceUsedLong()));
    if (!held.ok()) {
      stream_.DropIncoming();
      return Close(held.status());
    }
    stream_.OnRead(bytes, *std::move(held), shared_from_this());
  }
  void OnCancel() override { Cancelled(); }
  void OnDone() override {
    EndTurn();
    WithdrawTurn();
    stream_.StopWaiting();
    Post([this] { CleanUp(); });  // after the message under way
    Done();
  }

 protected:
  // `executor` handles the messages.
  IntakeCall(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc,
             Executor* executor)
      : Call(context, method, rpc), stream_(context, executor, this) {}

  // Before the first message; tenant() is known.
  virtual void Opened() = 0;
  // Bytes of tensors in the message.
  virtual int64_t DataBytes(const Request& request) const = 0;
  // An error ends the call.
  virtual absl::Status Take(const Request& request) = 0;
  // The client has closed its half.
  virtual absl::Status TakeEnd() = 0;
  // The call is over: drops what nobody can name any more.
  virtual void CleanUp() = 0;

  // In order with the messages; keeps this object alive.
  void Post(std::function<void()> task) {
    stream_.Post([self = shared_from_this(), task = std::move(task)] { task(); });
  }
  // What follows of the call runs there; what is under way stays.
  void MoveTo(Executor* executor) { stream_.MoveTo(executor); }
  // Nothing more is read.
  void StopReading() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    reading_ = false;
  }
  bool reading() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return reading_; }

 private:
  // A stream in which nothing comes for so long may not keep others from reading.
  static constexpr std::chrono::milliseconds kLongestTurn{1000};

  void StartReadIfOpen(Request* request) override {
    const ReadTurns::Ticket ticket =
        share().TakeTurn([this, request, self = shared_from_this()] { BeginTurn(request); });
    {
      MutexLock lock(mutex_);
      ticket_ = ticket;
      if (!over_) return;
    }
    share().WithdrawTurn(ticket);
  }
  // The RPC is over: what waits for a turn would keep this object.
  void WithdrawTurn() ABSL_LOCKS_EXCLUDED(mutex_) {
    ReadTurns::Ticket ticket = 0;
    {
      MutexLock lock(mutex_);
      over_ = true;
      ticket = ticket_;
    }
    share().WithdrawTurn(ticket);
  }
  void BeginTurn(Request* request) {
    {
      MutexLock lock(mutex_);
      has_turn_ = true;
      if (!closed() && reading_) {
        ReadBegins();
        return this->StartRead(request);
      }
    }
    EndTurn();
  }
  void EndTurn() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(mutex_);
      if (!std::exchange(has_turn_, false)) return;
    }
    share().GiveTurnBack();
  }
  void OnTick(Clock::time_point now) override {
    {
      MutexLock lock(mutex_);
      if (!has_turn_ || !read_begin() || now - *read_begin() < kLongestTurn) return;
    }
    EndTurn();
  }
  void Handle(const Request& request) override {
    if (IsClosed()) return;
    const absl::Status status = Take(request);
    if (status.ok()) return;
    if (DataBytes(request) > 0) context().metrics->ChunkRejected(ReasonOf(status));
    Close(status);
  }

  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool has_turn_ ABSL_GUARDED_BY(mutex_) = false;
  ReadTurns::Ticket ticket_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last turn
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  StagedStream<Request> stream_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_INTAKE_CALL_H_
