// Reads a client's stream no faster than its messages can be put away.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_STAGED_STREAM_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_STAGED_STREAM_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/net/connection.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/runtime/strand.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// A message that has arrived takes its bytes from the staging budget before
// it is queued for the executor; until the budget has room the stream is not
// read again and HTTP/2 flow control stops the sender. A stream that is silent
// holds nothing of the budget. So the bytes in memory are at most the budget
// and one message for each stream.
//
// Thread-safe, but OnRead must follow Read one by one, as gRPC does it.
template <typename Request>
class StagedStream {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // gRPC's StartRead, unless the RPC has been closed or wants no more.
    virtual void StartReadIfOpen(Request* request) = 0;
    // On the executor, one message at a time, in order.
    virtual void Handle(const Request& request) = 0;
  };

  StagedStream(RpcContext& context, Executor* executor, Owner* owner)
      : staging_(*context.staging), strand_(std::make_shared<Strand>(executor)), owner_(owner) {}

  // Before the first read. Its messages take the turns of `caller`.
  void SetCaller(std::string caller) { strand_->SetCaller(std::move(caller)); }
  // Where messages are handled from the next one on.
  void MoveTo(Executor* executor) { strand_->MoveTo(executor); }

  void Read() {
    incoming_ = std::make_unique<Message>();
    owner_->StartReadIfOpen(&incoming_->request);
  }

  const Request& incoming() const { return incoming_->request; }
  // Instead of OnRead: the RPC ends with this message.
  void DropIncoming() { incoming_.reset(); }

  // The read has brought a message with `bytes` of data. It keeps `held` until it is
  // handled; `alive` keeps the owner alive.
  void OnRead(int64_t bytes, HeldBytes held, std::shared_ptr<void> alive) {
    std::shared_ptr<Message> message = std::move(incoming_);
    message->held = std::move(held);
    const StagingBudget::WaiterId waiter =
        staging_.Acquire(bytes, [this, message = std::move(message), alive = std::move(alive)](
                                    StagingBudget::Reservation reservation) mutable {
          Queue(std::move(message), std::move(reservation), std::move(alive));
        });
    if (waiter != StagingBudget::kGranted) waiter_.store(waiter);
  }

  // The RPC is over: a message that still waits for the budget is dropped.
  void StopWaiting() { staging_.Cancel(waiter_.load()); }

  // In order with the messages.
  void Post(std::function<void()> task) { strand_->Post(std::move(task)); }

 private:
  // So that one fast sender does not fill the budget by itself.
  static constexpr int kMaxQueued = 4;

  struct Message {
    Request request;
    HeldBytes held;
  };

  void Queue(std::shared_ptr<Message> message, StagingBudget::Reservation reservation,
             std::shared_ptr<void> alive) {
    auto held = std::make_shared<StagingBudget::Reservation>(std::move(reservation));
    strand_->Post([this, message = std::move(message), held = std::move(held), alive]() mutable {
      owner_->Handle(message->request);
      message.reset();
      held.reset();
      Handled();
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

  void Handled() {
    bool read = false;
    {
      MutexLock lock(mutex_);
      --queued_;
      read = std::exchange(waiting_, false);
    }
    if (read) Read();
  }

  StagingBudget& staging_;
  const std::shared_ptr<Strand> strand_;
  Owner* const owner_;
  std::unique_ptr<Message> incoming_;  // handed to gRPC by Read, taken back by OnRead
  std::atomic<StagingBudget::WaiterId> waiter_{StagingBudget::kGranted};  // the last one
  Mutex mutex_;
  // Below 0 where a message is handled before it is counted.
  int queued_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // to read, for a queued message to be handled
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_STAGED_STREAM_H_
