#include "server/rpc/runtime/call_share.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "server/net/peer_address.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kSmallResponse = 4096;
// A message of 2 MiB takes as long over 1.6 Mbit/s.
constexpr std::chrono::seconds kLongRead(10);

std::shared_ptr<Connection> ConnectionOf(const Connections* connections,
                                         const grpc::CallbackServerContext& rpc) {
  if (connections == nullptr) return nullptr;
  const std::optional<PeerAddress> address = ParsePeerAddress(rpc.peer());
  return address ? connections->Find(*address) : nullptr;
}

}  // namespace

CallShare::CallShare(const Connections* connections, const grpc::CallbackServerContext& rpc)
    : connection_(ConnectionOf(connections, rpc)) {}

absl::Status CallShare::Enter() {
  if (connection_ == nullptr) return absl::OkStatus();
  entered_ = true;
  if (connection_->Enter()) return absl::OkStatus();
  return RefuseForNow(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
                      "an address may have %d open calls; yours has as many",
                      connection_->limits().calls);
}

void CallShare::Leave() {
  if (std::exchange(entered_, false)) connection_->Leave();
}

void CallShare::Received(int64_t bytes) {
  if (connection_ != nullptr) connection_->Received(bytes);
}

void CallShare::Sent(int64_t bytes) {
  if (connection_ != nullptr) connection_->Sent(bytes);
}

absl::StatusOr<HeldBytes> CallShare::Hold(int64_t bytes) {
  if (connection_ == nullptr) return HeldBytes();
  if (connection_->peer().Hold(bytes)) return HeldBytes(connection_, bytes);
  const PeerLimits& limits = connection_->limits();
  return RefuseForNow(
      absl::StatusCode::kResourceExhausted, "PEER_MEMORY",
      "messages and responses under way may take %d bytes of memory from an address and %d "
      "in all; %d more are beyond that",
      limits.peer_held_bytes, limits.held_bytes, bytes);
}

absl::StatusOr<HeldBytes> CallShare::HoldResponse(int64_t bytes, int copies) {
  Sent(bytes);
  if (bytes <= kSmallResponse) return HeldBytes();
  return Hold(copies * bytes);
}

ReadTurns::Ticket CallShare::TakeTurn(std::function<void()> begin) {
  if (connection_ != nullptr) return connection_->peer().turns().Take(std::move(begin));
  begin();
  return 0;
}

void CallShare::WithdrawTurn(ReadTurns::Ticket ticket) {
  if (connection_ != nullptr) connection_->peer().turns().Withdraw(ticket);
}

CallShare::PendingRead CallShare::BeginRead() const {
  return {std::chrono::steady_clock::now(),
          connection_ == nullptr ? 0 : connection_->peer().allowed()};
}

absl::Status CallShare::CheckRead(const PendingRead& read,
                                  std::chrono::steady_clock::time_point now) const {
  if (connection_ == nullptr || now - read.begin < kLongRead) return absl::OkStatus();
  const int64_t allowed = connection_->peer().allowed() - read.allowed;
  if (allowed <= connection_->limits().allowed_bytes) return absl::OkStatus();
  return RefuseForNow(
      absl::StatusCode::kResourceExhausted, "PEER_MEMORY",
      "no message has come on this stream for %ds, in which other calls of your address may "
      "have brought %d bytes beside their messages; at most %d are allowed",
      absl::ToInt64Seconds(absl::FromChrono(now - read.begin)), allowed,
      connection_->limits().allowed_bytes);
}

void CallShare::GiveTurnBack() {
  if (connection_ != nullptr) connection_->peer().turns().GiveBack();
}

}  // namespace sparsefw::server
