// The input half of every call in which the client streams chunks.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_INTAKE_CALL_H_
#define SPARSEFW_SERVER_RPC_TENSORS_INTAKE_CALL_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "server/rpc/runtime/call.h"
#include "server/rpc/runtime/strand.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {

// A message that has arrived takes its bytes from the staging budget before it is queued for the
// executor, where messages are handled in order. Until the budget has room the stream is not read
// again and HTTP/2 flow control stops the sender. A stream that is silent holds nothing of the
// budget: the bytes in memory are at most the budget and one message for each stream.
//
// `Reactor` is gRPC's class with StartRead. The derived class uses its members from Take, TakeEnd
// and CleanUp without a lock.
template <typename Reactor, typename Request>
class IntakeCall : public Reactor, public Call {
 public:
  void Start() {
    if (!Open()) return;
    if (const absl::Status status = context().registry->Admit(); !status.ok()) {
      return Close(status);
    }
    strand_->SetCaller(sharer());
    Read();
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
    const Request& request = incoming_->request;
    connection().Received(static_cast<int64_t>(request.ByteSizeLong()));
    const int64_t bytes = DataBytes(request);
    context().metrics->BytesReceived(method(), bytes);
    absl::StatusOr<HeldBytes> held =
        connection().Hold(static_cast<int64_t>(request.SpaceUsedLong()));
    if (!held.ok()) {
      incoming_.reset();
      return Close(held.status());
    }
    std::shared_ptr<Message> message = std::move(incoming_);
    message->held = *std::move(held);
    const FairSemaphore::WaiterId waiter = context().staging->Acquire(
        bytes, [this, message = std::move(message),
                self = shared_from_this()](FairSemaphore::Reservation staged) mutable {
          message->staged = std::move(staged);
          Stage(std::move(message));
        });
    if (waiter != FairSemaphore::kGranted) waiter_.store(waiter);
  }
  void OnCancel() override { Cancelled(); }
  void OnDone() override {
    EndTurn();
    WithdrawTurn();
    context().staging->Cancel(waiter_.load());  // a message that waits for the budget is dropped
    Post([this] { CleanUp(); });                // after the message under way
    Done();
  }

 protected:
  // `executor` handles the messages.
  IntakeCall(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc,
             Executor* executor)
      : Call(context, method, rpc), strand_(std::make_shared<Strand>(executor)) {}

  // Bytes of tensors in the message.
  virtual int64_t DataBytes(const Request& request) const = 0;
  // An error ends the call.
  virtual absl::Status Take(const Request& request) = 0;
  // The client has closed its half.
  virtual absl::Status TakeEnd() = 0;
  // The call is over: drops what nobody can name any more.
  virtual void CleanUp() = 0;

  // Runs the task in order with the messages; keeps this object alive.
  void Post(std::function<void()> task) {
    strand_->Post([this, self = shared_from_this(), task = std::move(task)] {
      RunGuarded([&task] {
        task();
        return false;
      });
    });
  }
  // Moves the rest of the call to `executor`; a task under way stays where it is.
  void MoveTo(Executor* executor) { strand_->MoveTo(executor); }
  // Nothing more is read.
  void StopReading() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    reading_ = false;
  }
  bool reading() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return reading_; }

 private:
  // A stream in which nothing comes for so long may not keep others from reading.
  static constexpr std::chrono::milliseconds kLongestTurn{1000};

  // Keeps one fast sender from filling the budget.
  static constexpr int kMaxQueued = 4;

  struct Message {
    FairSemaphore::Reservation staged;
    HeldBytes held;
    Request request;
  };

  // Unless the RPC has been closed or wants no more.
  void Read() {
    incoming_ = std::make_unique<Message>();
    const FairSemaphore::WaiterId ticket = connection().peer().turns().Acquire(
        1, [this, self = shared_from_this()](FairSemaphore::Reservation turn) {
          BeginTurn(std::move(turn));
        });
    {
      MutexLock lock(mutex_);
      // A turn that was there at once may have ended, and the next one may wait by now.
      if (ticket != FairSemaphore::kGranted) ticket_ = ticket;
      if (!over_) return;
    }
    connection().peer().turns().Cancel(ticket);
  }
  // The RPC is over: what waits for a turn would keep this object.
  void WithdrawTurn() ABSL_LOCKS_EXCLUDED(mutex_) {
    FairSemaphore::WaiterId ticket = FairSemaphore::kGranted;
    {
      MutexLock lock(mutex_);
      over_ = true;
      ticket = ticket_;
    }
    connection().peer().turns().Cancel(ticket);
  }
  // A turn that is not used is given back by the caller, without the lock.
  void BeginTurn(FairSemaphore::Reservation&& turn) {
    MutexLock lock(mutex_);
    if (closed() || !reading_) return;
    turn_ = std::move(turn);
    ReadBegins();
    this->StartRead(&incoming_->request);
  }
  void EndTurn() ABSL_LOCKS_EXCLUDED(mutex_) {
    FairSemaphore::Reservation ended;  // given back without the lock
    MutexLock lock(mutex_);
    ended = std::move(turn_);
  }
  void OnTick(Clock::time_point now) override {
    {
      MutexLock lock(mutex_);
      if (turn_.units() == 0 || !read_begin() || now - *read_begin() < kLongestTurn) return;
    }
    EndTurn();
  }
  void Stage(std::shared_ptr<Message> message) {
    Post([this, message = std::move(message)]() mutable {
      Handle(message->request);
      message.reset();
      bool read = false;
      {
        MutexLock lock(mutex_);
        --queued_;
        read = std::exchange(waiting_, false);
      }
      if (read) Read();
    });
    // Only now: whoever handles a message before this one may read the next.
    bool read = false;
    {
      MutexLock lock(mutex_);
      read = ++queued_ < kMaxQueued;
      waiting_ = !read;
    }
    if (read) Read();
  }
  void Handle(const Request& request) {
    if (IsClosed()) return;
    const absl::Status status = Take(request);
    if (status.ok()) return;
    if (DataBytes(request) > 0) context().metrics->ChunkRejected(ReasonOf(status));
    Close(status);
  }

  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  FairSemaphore::Reservation turn_ ABSL_GUARDED_BY(mutex_);
  FairSemaphore::WaiterId ticket_ ABSL_GUARDED_BY(mutex_) =
      FairSemaphore::kGranted;  // of the last turn
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  const std::shared_ptr<Strand> strand_;
  std::unique_ptr<Message> incoming_;  // handed to gRPC by BeginTurn, taken back by OnReadDone
  std::atomic<FairSemaphore::WaiterId> waiter_{FairSemaphore::kGranted};  // the last one
  // Below 0 where a message is handled before it is counted.
  int queued_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // to read, for a queued message to be handled
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_INTAKE_CALL_H_
