#include "server/net/connection.h"

#include <sys/eventfd.h>

namespace sparsefw::server {
namespace {

// Bytes of headers, frames and TLS records beside the message: as many as any client needs, so that
// an honest connection never seems to hold what it does not. A client that needs fewer can hide
// bytes behind them: Peer::allowed().
constexpr int64_t kBytesOfCall = 128;
constexpr int64_t kBytesOfMessage = 64;
constexpr int64_t kFraming = 128;  // one byte of so many
constexpr int64_t kWindows = 256;  // one byte of so many sent: its reader answers with windows

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

bool Connection::Enter() {
  const bool within = peer_->Enter();
  calls_.fetch_add(1);
  Allow(kBytesOfCall);
  if (peer_->ledger().asleep.load() && peer_->ledger().asleep.exchange(false)) {
    eventfd_write(peer_->ledger().wake.get(), 1);
  }
  return within;
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

void Connection::Allow(int64_t bytes) {
  explained_.fetch_add(bytes);
  peer_->Allow(bytes);
}

}  // namespace sparsefw::server
