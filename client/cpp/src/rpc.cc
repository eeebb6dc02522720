#include "client/cpp/src/rpc.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "sparsefw/client/error.h"
#include "sparsefw/reason.h"

namespace sparsefw::client::internal {
namespace {

// Attempts of a call that the server does not answer in time.
constexpr int kAttemptsInSilence = 3;
constexpr absl::Duration kLookAtStop = absl::Milliseconds(50);

std::chrono::system_clock::time_point DeadlineIn(absl::Duration timeout) {
  return absl::ToChronoTime(absl::Now() + timeout);
}

// Sleeps until `end`, or until stop is requested.
void SleepUntil(absl::Time end, const CallOptions& call) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock<std::mutex> lock(mutex);
  wake.wait_for(lock, call.stop, absl::ToChronoNanoseconds(end - absl::Now()),
                [] { return false; });
}

// The wait for a channel that is lost, between two looks at the stop token.
constexpr absl::Duration kPollPeriod = absl::Milliseconds(50);
// How long a stop waits for an answer that names what the call has made.
constexpr absl::Duration kAnswerTime = absl::Seconds(1);

// Cancels an RPC that has no answer kAnswerTime after stop was requested.
class CancelAfterStop {
 public:
  CancelAfterStop(const CallOptions& call, grpc::ClientContext* context)
      : callback_(call.stop, [this, context] {
          thread_ = std::jthread([context](const std::stop_token& answered) {
            SleepUntil(absl::Now() + kAnswerTime, CallOptions{answered});
            if (!answered.stop_requested()) context->TryCancel();
          });
        }) {}

 private:
  std::jthread thread_;
  // Last, so that it is over when the thread is joined.
  std::stop_callback<std::function<void()>> callback_;
};

// What happened, without gRPC's words around it: "failed to connect to all addresses; last error:
// UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused".
std::string Reason(std::string_view message) {
  constexpr std::string_view kLast = "last error: ";
  if (const size_t at = message.find(kLast); at != std::string_view::npos) {
    message.remove_prefix(at + kLast.size());
    message.remove_prefix(std::min(message.find(": ") + 2, message.size()));  // the code
    for (const std::string_view scheme : {"ipv4:", "ipv6:", "unix:"}) {
      if (!message.starts_with(scheme)) continue;
      message.remove_prefix(std::min(message.find(": ") + 2, message.size()));
      break;
    }
  }
  constexpr std::string_view kConnect = "Failed to connect to remote host: ";
  if (message.starts_with(kConnect)) message.remove_prefix(kConnect.size());
  return std::string(message);
}

}  // namespace

absl::Status Stopped() {
  return Refuse(absl::StatusCode::kCancelled, "STOPPED", "stopped by the caller");
}

Rpc::Rpc(std::string address, ClientOptions options)
    : address_(std::move(address)), options_(std::move(options)), endpoints_(address_, options_) {}

absl::Status Rpc::WaitUntilConnected() {
  const absl::Time begin = absl::Now();
  const absl::Time end = begin + options_.connect_timeout;
  while (absl::Now() < end) {
    if (options_.connect_stop.stop_requested()) return Stopped();
    if (endpoints_.TryConnect(begin)) return absl::OkStatus();
    endpoints_.Poll(begin, std::min(end, absl::Now() + kLookAtStop));
  }
  // Only a call tells why.
  grpc::ClientContext context;
  AddMetadata(&context);
  context.set_deadline(DeadlineIn(absl::Seconds(1)));
  v1::ServerInfo info;
  const grpc::Status why = jobs().GetServerInfo(&context, v1::GetServerInfoRequest(), &info);
  if (why.ok()) return absl::OkStatus();
  if (options_.connect_stop.stop_requested()) return Stopped();
  return Refuse(absl::StatusCode::kUnavailable, "UNREACHABLE",
                "no server could be reached at %s within %s: %s", address_,
                absl::FormatDuration(options_.connect_timeout), Reason(why.error_message()));
}

bool IsToken(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

absl::Status Rpc::CheckArguments() const {
  for (const auto& endpoint : endpoints_.all()) {
    if (IsAddress(endpoint->address)) continue;
    return Invalid("CLIENT_ARGUMENT",
                   "an address must be HOST:PORT with a port in [1, 65535], or several with commas "
                   "between them; got \"%s\"",
                   address_);
  }
  const std::string& token = options_.token;
  if (token.empty()) return absl::OkStatus();
  if (!IsToken(token)) {  // the message does not show it
    return Invalid("CLIENT_ARGUMENT",
                   "a token must have printable ASCII characters only, and no space; got one of %d "
                   "bytes with another character",
                   token.size());
  }
  if (options_.credentials != nullptr) return absl::OkStatus();
  for (const auto& endpoint : endpoints_.all()) {
    if (IsLoopback(endpoint->address)) continue;
    return Invalid("CLIENT_ARGUMENT",
                   "a token is only sent over TLS or to this machine: the connection to %s would "
                   "be plain text",
                   endpoint->address);
  }
  return absl::OkStatus();
}

void Rpc::AddMetadata(grpc::ClientContext* context) const {
  if (!options_.token.empty()) context->AddMetadata("authorization", "Bearer " + options_.token);
  if (!options_.traceparent.empty()) context->AddMetadata("traceparent", options_.traceparent);
}

Backoff Rpc::NewBackoff() const {
  return Backoff(options_.retry, absl::Now(), absl::Uniform<uint64_t>(absl::BitGen()));
}

absl::Status Rpc::WaitToRetry(const absl::Status& failure, Backoff& backoff,
                              const CallOptions& call) const {
  // A connection that broke: without gRPC's words, and with the address that they are about.
  absl::Status error = failure;
  const std::string message(failure.message());
  if (const std::string reason = Reason(message); reason != message) {
    error = WithMessage(failure, absl::StrFormat("%s: %s", address_, reason));
  }
  const auto delay = backoff.Next(absl::Now(), RetryDelayOf(error));
  if (!delay) {
    return WithMessage(error, absl::StrFormat("%s; gave up after %s without progress",
                                              std::string(error.message()),
                                              absl::FormatDuration(options_.retry.give_up_after)));
  }
  if (options_.on_retry) options_.on_retry(error, *delay);
  WaitFor(*delay, error, call);
  return call.stop.stop_requested() ? Stopped() : absl::OkStatus();
}

void Rpc::WaitFor(absl::Duration delay, const absl::Status& error, const CallOptions& call) const {
  const absl::Time begin = absl::Now();
  const absl::Time end = begin + delay;
  // A lost connection that is back needs no more patience: the channels have their own back-off.
  const bool lost = absl::IsUnavailable(error) && ReasonOf(error).empty();
  const absl::Time soonest = lost ? std::min(begin + options_.retry.initial_backoff, end) : end;
  while (!call.stop.stop_requested()) {
    const absl::Time now = absl::Now();
    if (now >= end) return;
    if (lost && !endpoints_.TryConnect(begin)) {
      endpoints_.Poll(begin, std::min(now + kPollPeriod, end));
      continue;
    }
    const Endpoint& endpoint = endpoints_.current();
    const auto channels = {endpoint.control_channel.get(), endpoint.data_channel.get()};
    const auto waiting = std::find_if(channels.begin(), channels.end(), [](grpc::Channel* channel) {
      return channel->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_READY;
    });
    if (waiting != channels.end()) {
      PollUntil(**waiting, std::min(now + kPollPeriod, end));
    } else {
      if (now >= soonest) return;
      SleepUntil(soonest, call);
    }
  }
}

absl::Status Rpc::StreamStatus(const grpc::Status& status, const CallOptions& call) const {
  if (!status.ok() && call.stop.stop_requested()) return Stopped();
  return StatusFromGrpc(status);
}

absl::Status Rpc::Call(std::string_view method, const CallOptions& call, const Attempt& attempt,
                       OnStop on_stop) const {
  Backoff backoff = NewBackoff();
  for (int silent = 0;;) {
    if (call.stop.stop_requested()) return Stopped();
    absl::Status status;
    {
      grpc::ClientContext context;
      AddMetadata(&context);
      context.set_deadline(DeadlineIn(options_.call_timeout));
      std::optional<CancelOnStop> at_once;
      std::optional<CancelAfterStop> later;
      if (on_stop == OnStop::kCancel) {
        at_once.emplace(call, &context);
      } else {
        later.emplace(call, &context);
      }
      status = StreamStatus(attempt(&context), call);
    }
    if (absl::IsDeadlineExceeded(status) && ReasonOf(status).empty()) {
      status = absl::DeadlineExceededError(
          absl::StrFormat("%s: no answer to %s within %s", address_, method,
                          absl::FormatDuration(options_.call_timeout)));
      if (!call.retry || ++silent == kAttemptsInSilence) return status;
      // Counted, not timed: one attempt may take longer than all retrying may.
      if (options_.on_retry) options_.on_retry(status, absl::ZeroDuration());
      backoff.Reset(absl::Now());
      continue;
    }
    if (!call.retry || !IsTransient(status)) return status;
    if (absl::Status waited = WaitToRetry(status, backoff, call); !waited.ok()) return waited;
  }
}

absl::Status Rpc::Delete(std::string_view method, const CallOptions& call,
                         const Attempt& attempt) const {
  bool lost = false;
  return Call(method, call, [&](grpc::ClientContext* context) {
    const grpc::Status answer = attempt(context);
    if (lost && answer.error_code() == grpc::StatusCode::NOT_FOUND) return grpc::Status::OK;
    // The server's own refusals have a reason.
    lost = lost || (!answer.ok() && ReasonOf(StatusFromGrpc(answer)).empty());
    return answer;
  });
}

std::string NewRequestId() {
  absl::BitGen random;
  const auto high = absl::Uniform<uint64_t>(random);
  const auto low = absl::Uniform<uint64_t>(random);
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%012x", high >> 32, (high >> 16) & 0xffff,
                         high & 0xfff, 0x8000 | ((low >> 48) & 0x3fff), low & 0xffff'ffff'ffffULL);
}

}  // namespace sparsefw::client::internal
