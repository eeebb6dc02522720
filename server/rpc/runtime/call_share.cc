#include "server/rpc/runtime/call_share.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/net/peer_address.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr char kRetryMs[] = "1000";

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
  entered_ = connection_->Enter();
  if (entered_) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrFormat(
          "an address may have %d open calls; yours has as many", connection_->limits().calls)),
      "TOO_MANY_CALLS", {{"retry_delay_ms", kRetryMs}});
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
  return WithReason(
      absl::ResourceExhaustedError(absl::StrFormat(
          "messages and responses under way may take %d bytes of memory from an address and %d "
          "in all; %d more are beyond that",
          limits.peer_held_bytes, limits.held_bytes, bytes)),
      "PEER_MEMORY", {{"retry_delay_ms", kRetryMs}});
}

void CallShare::TakeTurn(std::function<void()> begin) {
  if (connection_ == nullptr) return begin();
  connection_->peer().turns().Take(std::move(begin));
}

void CallShare::GiveTurnBack() {
  if (connection_ != nullptr) connection_->peer().turns().GiveBack();
}

}  // namespace sparsefw::server
