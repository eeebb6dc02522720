#include "server/net/connection.h"

#include <sys/eventfd.h>

namespace sparsefw::server {
namespace {

// What frames, headers and records of TLS take beside the message: more than any client
// needs, so that an honest connection never seems to hold what it does not.
constexpr int64_t kBytesOfCall = 128;
constexpr int64_t kBytesOfMessage = 64;
constexpr int64_t kFraming = 64;  // one byte of so many

// False: `value` stays.
bool AddWithin(int64_t bytes, int64_t limit, std::atomic<int64_t>* value) {
  if (value->fetch_add(bytes) + bytes <= limit) return true;
  value->fetch_sub(bytes);
  return false;
}

}  // namespace

Ledger::Ledger(const PeerLimits& with)
    : limits(with), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Peer::Peer(std::shared_ptr<Ledger> ledger)
    : ledger_(std::move(ledger)), turns_(ledger_->limits.turns, [this] {
        return held_.load() <= ledger_->limits.peer_held_bytes / 2;
      }) {}

bool Peer::Enter() {
  if (!AddWithin(1, ledger_->limits.calls, &calls_)) return false;
  ++ledger_->calls;
  return true;
}

void Peer::Leave() {
  --calls_;
  --ledger_->calls;
}

bool Peer::Hold(int64_t bytes) {
  if (!AddWithin(bytes, ledger_->limits.peer_held_bytes, &held_)) return false;
  if (AddWithin(bytes, ledger_->limits.held_bytes, &ledger_->held)) return true;
  held_.fetch_sub(bytes);
  return false;
}

void Peer::Release(int64_t bytes) {
  ledger_->held.fetch_sub(bytes);
  const int64_t before = held_.fetch_sub(bytes);
  const int64_t half = ledger_->limits.peer_held_bytes / 2;
  if (before > half && before - bytes <= half) turns_.Resume();
}

bool Connection::Enter() {
  if (!peer_->Enter()) return false;
  calls_.fetch_add(1);
  explained_.fetch_add(kBytesOfCall);
  if (peer_->ledger().asleep.load() && peer_->ledger().asleep.exchange(false)) {
    eventfd_write(peer_->ledger().wake.get(), 1);
  }
  return true;
}

void Connection::Leave() {
  calls_.fetch_sub(1);
  peer_->Leave();
}

void Connection::Received(int64_t bytes) {
  explained_.fetch_add(bytes + bytes / kFraming + kBytesOfMessage);
}

}  // namespace sparsefw::server
