// How a client connects, waits and retries.
#ifndef SPARSEFW_CLIENT_OPTIONS_H_
#define SPARSEFW_CLIENT_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace grpc {
class ChannelCredentials;
}

namespace sparsefw::client {

struct RetryOptions {
  // The n-th wait in a row is drawn from [d/2, d] with
  // d = min(max_backoff, initial_backoff * multiplier^n).
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(2);
  double multiplier = 2;
  // Time without progress (a byte committed, an event received) after which
  // the last error is returned.
  absl::Duration give_up_after = absl::Minutes(1);
};

// A W3C trace context, version 00 in lower case: 00-<trace>-<span>-<flags>.
bool IsTraceparent(std::string_view text);
// With a random trace and span, not sampled.
std::string NewTraceparent();

struct ClientOptions {
  // For the first connection.
  absl::Duration connect_timeout = absl::Seconds(5);
  // Ends that wait, with CANCELLED (reason STOPPED).
  std::stop_token connect_stop;
  // For one attempt of a call that is not a stream; there are at most three.
  absl::Duration call_timeout = absl::Minutes(2);
  // A watch on which nothing has come for so long, not even one of the
  // heartbeats (a third of this apart), is broken and opened again; so is a download on
  // which no whole chunk (1 MiB at most) has come.
  absl::Duration watch_silence = absl::Seconds(30);
  RetryOptions retry;
  // Data bytes in a message, [1, kMaxChunkBytes].
  int64_t chunk_bytes = 1 << 20;
  // Messages stay at or under 2 MiB, framing included.
  static constexpr int64_t kMaxChunkBytes = (2 << 20) - (4 << 10);
  // Told of every attempt that failed and will be made again after the wait.
  // Called from the thread of the call.
  std::function<void(const absl::Status& error, absl::Duration wait)> on_retry;
  // Recorded by the server with every tensor and job.
  std::string owner;
  // None: plain text. TlsCredentials (tls.h) makes them of PEM files.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Sent with every call as `authorization: Bearer TOKEN`; empty: none. Refused
  // (CLIENT_ARGUMENT) without `credentials`, except to this machine: others on the way
  // could read it.
  std::string token;
  // Sent with every call, and logged by the server with its calls and jobs. Empty: a
  // new one for this client. Refused (CLIENT_ARGUMENT) unless IsTraceparent.
  std::string traceparent;
};

struct CallOptions {
  // When stop is requested the call ends within milliseconds with CANCELLED (reason STOPPED). The
  // server keeps what it has accepted by then.
  std::stop_token stop;
  // False: one attempt, for what is not worth waiting for. Transfers and
  // WaitJob always go on after a broken connection.
  bool retry = true;
};

// How far a transfer is. After a broken stream `done_bytes` may step back to
// what the server has committed.
struct TransferProgress {
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;
};
// Called from the thread of the call, after every chunk.
using TransferCallback = std::function<void(const TransferProgress&)>;

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_OPTIONS_H_
