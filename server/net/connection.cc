#include "server/net/connection.h"

#include <sys/eventfd.h>

#include <limits>

#include "absl/time/time.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

// Bytes of headers, frames and TLS records beside the message: as many as any client needs, so that
// an honest connection never seems to hold what it does not. A client that needs fewer can hide
// bytes behind them: Peer::allowed().
constexpr int64_t kBytesOfCall = 128;
constexpr int64_t kBytesOfMessage = 64;
constexpr int64_t kFraming = 128;  // one byte of so many
constexpr int64_t kWindows = 256;  // one byte of so many sent: its reader answers with windows

constexpr int64_t kSmallResponse = 4096;
// A message of 2 MiB takes as long over 1.6 Mbit/s.
constexpr std::chrono::seconds kLongRead(10);

// False: `value` stays, and nobody sees it larger meanwhile.
bool AddWithin(int64_t bytes, int64_t limit, std::atomic<int64_t>* value) {
  int64_t before = value->load();
  do {
    if (before + bytes > limit) return false;
  } while (!value->compare_exchange_weak(before, before + bytes));
  return true;
}

}  // namespace

Ledger::Ledger(const PeerLimits& with)
    : limits(with), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Peer::Peer(std::shared_ptr<Ledger> ledger)
    : ledger_(std::move(ledger)), turns_(ledger_->limits.turns, [this] {
        return held_.load() <= ledger_->limits.peer_held_bytes / 2;
      }) {}

bool Peer::Enter() {
  ++ledger_->calls;
  return calls_.fetch_add(1) < ledger_->limits.calls;
}

void Peer::Leave() {
  --calls_;
  --ledger_->calls;
}

bool Peer::Hold(int64_t bytes) {
  // That of all first: streams look at the peer's, and nobody would wake them.
  if (!AddWithin(bytes, ledger_->limits.held_bytes, &ledger_->held)) return false;
  if (AddWithin(bytes, ledger_->limits.peer_held_bytes, &held_)) return true;
  ledger_->held.fetch_sub(bytes);
  return false;
}

void Peer::Release(int64_t bytes) {
  ledger_->held.fetch_sub(bytes);
  const int64_t before = held_.fetch_sub(bytes);
  const int64_t half = ledger_->limits.peer_held_bytes / 2;
  if (before > half && before - bytes <= half) turns_.Resume();
}

std::shared_ptr<Connection> Connection::Unlimited() {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  static const auto connection = std::make_shared<Connection>(std::make_shared<Peer>(
      std::make_shared<Ledger>(PeerLimits{.calls = kNone,
                                          .held_bytes = kNone,
                                          .peer_held_bytes = kNone,
                                          .turns = std::numeric_limits<int>::max(),
                                          .allowed_bytes = kNone})));
  return connection;
}

absl::Status Connection::Enter() {
  const bool within = peer_->Enter();
  calls_.fetch_add(1);
  Allow(kBytesOfCall);
  if (peer_->ledger().asleep.load() && peer_->ledger().asleep.exchange(false)) {
    eventfd_write(peer_->ledger().wake.get(), 1);
  }
  if (within) return absl::OkStatus();
  return RefuseForNow(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
                      "an address may have %d open calls; yours has as many", limits().calls);
}

void Connection::Leave() {
  calls_.fetch_sub(1);
  peer_->Leave();
}

void Connection::Received(int64_t bytes) {
  explained_.fetch_add(bytes);
  Allow(bytes / kFraming + kBytesOfMessage);
}

void Connection::Sent(int64_t bytes) { Allow(bytes / kWindows + kBytesOfMessage); }

absl::StatusOr<HeldBytes> Connection::Hold(int64_t bytes) {
  if (peer_->Hold(bytes)) return HeldBytes(peer_, bytes);
  return RefuseForNow(
      absl::StatusCode::kResourceExhausted, "PEER_MEMORY",
      "messages and responses under way may take %d bytes of memory from an address and %d "
      "in all; %d more are beyond that",
      limits().peer_held_bytes, limits().held_bytes, bytes);
}

absl::StatusOr<HeldBytes> Connection::HoldResponse(int64_t bytes, int copies) {
  Sent(bytes);
  if (bytes <= kSmallResponse) return HeldBytes();
  return Hold(copies * bytes);
}

absl::Status Connection::CheckRead(const PendingRead& read,
                                   std::chrono::steady_clock::time_point now) const {
  if (now - read.begin < kLongRead) return absl::OkStatus();
  const int64_t allowed = peer_->allowed() - read.allowed;
  if (allowed <= limits().allowed_bytes) return absl::OkStatus();
  return RefuseForNow(
      absl::StatusCode::kResourceExhausted, "PEER_MEMORY",
      "no message has come on this stream for %ds, in which other calls of your address may "
      "have brought %d bytes beside their messages; at most %d are allowed",
      absl::ToInt64Seconds(absl::FromChrono(now - read.begin)), allowed, limits().allowed_bytes);
}

void Connection::Allow(int64_t bytes) {
  explained_.fetch_add(bytes);
  peer_->Allow(bytes);
}

}  // namespace sparsefw::server
