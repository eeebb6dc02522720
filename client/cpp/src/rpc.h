// The connections of a client and its one policy of retries.
#ifndef SPARSEFW_CLIENT_SRC_RPC_H_
#define SPARSEFW_CLIENT_SRC_RPC_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/cpp/src/endpoints.h"
#include "sparsefw/client/backoff.h"
#include "sparsefw/client/options.h"

namespace sparsefw::client::internal {

// Cancels an RPC while it lives, once stop is requested.
class CancelOnStop {
 public:
  CancelOnStop(const CallOptions& call, grpc::ClientContext* context)
      : callback_(call.stop, [context] { context->TryCancel(); }) {}

 private:
  std::stop_callback<std::function<void()>> callback_;
};

// `text` has only characters that the header of a token may hold.
bool IsToken(std::string_view text);

// Cancelled (STOPPED).
absl::Status Stopped();

// What a requested stop does to a call under way.
enum class OnStop {
  kCancel,       // ends it at once
  kAwaitAnswer,  // gives it a second: its answer names what it has made on the server
};

// Thread-safe.
class Rpc {
 public:
  Rpc(std::string address, ClientOptions options);

  // Errors: Unavailable (UNREACHABLE) after connect_timeout; Cancelled (STOPPED) by connect_stop
  absl::Status WaitUntilConnected();

  // Errors: InvalidArgument (CLIENT_ARGUMENT): an address that is none; a token that is none, or
  // that would travel in plain text.
  absl::Status CheckArguments() const;
  // Token and trace; to be called with the context of every RPC.
  void AddMetadata(grpc::ClientContext* context) const;

  const std::string& address() const { return address_; }
  const ClientOptions& options() const { return options_; }
  // The channel of the address in use; another one may be by the next call.
  const std::shared_ptr<grpc::Channel>& control_channel() const {
    return endpoints_.current().control_channel;
  }
  v1::PruneService::Stub& jobs() const { return *endpoints_.current().jobs; }
  // On the control channel: calls that carry no tensor bytes.
  v1::TensorService::Stub& tensors() const { return *endpoints_.current().tensors; }
  // On the data channel.
  v1::TensorService::Stub& data() const { return *endpoints_.current().data; }
  v1::PruneService::Stub& data_jobs() const { return *endpoints_.current().data_jobs; }

  // Runs a call that is safe to repeat until it succeeds, fails for good, or
  // retrying has taken too long. One that is not answered in time is made three
  // times (DeadlineExceeded).
  using Attempt = std::function<grpc::Status(grpc::ClientContext*)>;
  absl::Status Call(std::string_view method, const CallOptions& call, const Attempt& attempt,
                    OnStop on_stop = OnStop::kCancel) const;

  // Call, for a deletion: after an attempt whose answer was lost there is nothing left to delete,
  // which is what it is to reach.
  absl::Status Delete(std::string_view method, const CallOptions& call,
                      const Attempt& attempt) const;

  Backoff NewBackoff() const;
  // After `failure`, which is worth another attempt: waits and returns OK, or
  // returns it (with "gave up after") when the time is up, or Stopped().
  absl::Status WaitToRetry(const absl::Status& failure, Backoff& backoff,
                           const CallOptions& call) const;

  // The status of a finished stream, as the caller is to see it.
  absl::Status StreamStatus(const grpc::Status& status, const CallOptions& call) const;

 private:
  // The wait before another attempt after `error`. Shorter once a lost connection
  // is back, or one to another address is there, or when stop is requested.
  void WaitFor(absl::Duration delay, const absl::Status& error, const CallOptions& call) const;

  const std::string address_;
  const ClientOptions options_;
  // Which of them is in use changes nothing that a caller of a const method sees.
  mutable Endpoints endpoints_;
};

// A random UUID (version 4).
std::string NewRequestId();

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_RPC_H_
