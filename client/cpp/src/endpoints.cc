#include "client/cpp/src/endpoints.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace sparsefw::client::internal {
namespace {

// The head start of an address over the next one, if it does not answer at all. One that refuses
// gets none.
constexpr absl::Duration kHeadStart = absl::Milliseconds(250);
// Between two looks at all addresses that are tried.
constexpr absl::Duration kLook = absl::Milliseconds(20);
constexpr std::string_view kSchemes[] = {
    "unix:", "unix-abstract:", "vsock:", "dns:", "ipv4:", "ipv6:", "xds:"};
constexpr int kMaxPort = 65535;

bool IsIpv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));  // without a zone, "%eth0"
  in6_addr ipv6 = {};
  return inet_pton(AF_INET6, address.c_str(), &ipv6) == 1;
}

bool IsHost(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) return IsIpv6(host.substr(1, host.size() - 2));
  // The slash is that of a URL, the colon that of an IPv6 address without brackets.
  return !host.empty() && std::none_of(host.begin(), host.end(), [](char c) {
    return c == ':' || c == '/' || c == '[' || c == ']' ||
           absl::ascii_isspace(static_cast<unsigned char>(c));
  });
}

bool IsPort(std::string_view text) {
  int port = 0;
  // SimpleAtoi also takes a sign and blanks.
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(std::string(text), &port) && port >= 1 && port <= kMaxPort;
}

grpc::ChannelArguments Arguments(const std::string& address, const ClientOptions& options,
                                 bool alone) {
  grpc::ChannelArguments arguments;
  // Its own connection: a small call on a shared one waits behind uploads.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries are ours: gRPC's would buffer streams and cannot resume them.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // A peer that vanished without closing its connection is noticed within a
  // minute, also while a watch is silent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 40'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A call to an address that does not answer would wait 20 s before another one is tried.
  if (!alone) {
    const int64_t limit = absl::ToInt64Milliseconds(options.connect_timeout);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                     static_cast<int>(std::clamp<int64_t>(limit, 1, 20'000)));
  }
  // A proxy configured for the web has no way to this machine's loopback.
  if (IsLoopback(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace

bool IsAddress(std::string_view address) {
  const auto begins = [address](std::string_view scheme) { return address.starts_with(scheme); };
  if (std::any_of(std::begin(kSchemes), std::end(kSchemes), begins)) return true;
  const size_t colon = address.rfind(':');
  return colon != std::string_view::npos && IsHost(address.substr(0, colon)) &&
         IsPort(address.substr(colon + 1));
}

bool IsLoopback(std::string_view address) {
  if (address.starts_with("unix:") || address.starts_with("unix-abstract:")) return true;
  const std::string host(address.substr(0, address.rfind(':')));
  in_addr ipv4 = {};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return (ntohl(ipv4.s_addr) >> 24) == 127;
  return host == "localhost" || host == "[::1]";
}

void PollUntil(grpc::Channel& channel, absl::Time end) {
  const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
  if (state == GRPC_CHANNEL_READY) return;
  channel.WaitForStateChange(state, absl::ToChronoTime(end));
}

Endpoint::Endpoint(std::string name, const ClientOptions& options, bool alone)
    : address(std::move(name)) {
  const auto credentials =
      options.credentials ? options.credentials : grpc::InsecureChannelCredentials();
  const grpc::ChannelArguments arguments = Arguments(address, options, alone);
  control_channel = grpc::CreateCustomChannel(address, credentials, arguments);
  data_channel = grpc::CreateCustomChannel(address, credentials, arguments);
  jobs = v1::PruneService::NewStub(control_channel);
  tensors = v1::TensorService::NewStub(control_channel);
  data = v1::TensorService::NewStub(data_channel);
  data_jobs = v1::PruneService::NewStub(data_channel);
}

Endpoints::Endpoints(std::string_view addresses, const ClientOptions& options) {
  const std::vector<std::string> names =
      absl::StrSplit(absl::string_view(addresses.data(), addresses.size()), ',');
  for (const std::string& name : names) {
    all_.push_back(std::make_unique<Endpoint>(name, options, names.size() == 1));
  }
}

std::vector<size_t> Endpoints::Order() const {
  const size_t current = current_.load(std::memory_order_relaxed);
  std::vector<size_t> order = {current};
  for (size_t i = 0; i < all_.size(); ++i) {
    if (i != current) order.push_back(i);
  }
  return order;
}

bool Endpoints::TryConnect(absl::Time begin) {
  absl::Time due = begin;
  for (const size_t i : Order()) {
    if (absl::Now() < due) return false;
    const grpc_connectivity_state state = all_[i]->control_channel->GetState(true);
    if (state == GRPC_CHANNEL_READY) {
      current_.store(i, std::memory_order_relaxed);
      return true;
    }
    if (state != GRPC_CHANNEL_TRANSIENT_FAILURE) due += kHeadStart;
  }
  return false;
}

void Endpoints::Poll(absl::Time begin, absl::Time end) const {
  if (all_.size() == 1) return PollUntil(*all_[0]->control_channel, end);
  absl::Time due = begin;
  for (const size_t i : Order()) {
    const absl::Time now = absl::Now();
    if (now < due || now >= end) return;
    grpc::Channel& channel = *all_[i]->control_channel;
    if (channel.GetState(true) != GRPC_CHANNEL_TRANSIENT_FAILURE) due += kHeadStart;
    PollUntil(channel, std::min(now + kLook, end));
  }
}

}  // namespace sparsefw::client::internal
