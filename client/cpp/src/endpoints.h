// The addresses of a server, of which one is in use.
#ifndef SPARSEFW_CLIENT_SRC_ENDPOINTS_H_
#define SPARSEFW_CLIENT_SRC_ENDPOINTS_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "sparsefw/client/options.h"
#include "sparsefw/v1/prune_service.grpc.pb.h"
#include "sparsefw/v1/tensor_service.grpc.pb.h"

namespace sparsefw::client::internal {

// HOST:PORT with a port in [1, 65535] and an IPv6 address in brackets, or a name that says how gRPC
// resolves it ("unix:/path", "dns:///host:1").
bool IsAddress(std::string_view address);

// A socket of this machine, whatever names resolve to: "127.evil.example:1" is none.
bool IsLoopback(std::string_view address);

// Two connections to one address, one for bulk data and one for control. They are made at the
// first call. Thread-safe.
struct Endpoint {
  Endpoint(std::string address, const ClientOptions& options, bool alone);

  std::string address;
  std::shared_ptr<grpc::Channel> control_channel;
  std::shared_ptr<grpc::Channel> data_channel;
  std::unique_ptr<v1::PruneService::Stub> jobs;
  std::unique_ptr<v1::TensorService::Stub> tensors;
  std::unique_ptr<v1::TensorService::Stub> data;
  std::unique_ptr<v1::PruneService::Stub> data_jobs;
};

// Several addresses with commas between them. The first that can be reached is used until its
// connection is lost; then that one again, or else the first that can be reached. Thread-safe.
class Endpoints {
 public:
  Endpoints(std::string_view addresses, const ClientOptions& options);

  const std::vector<std::unique_ptr<Endpoint>>& all() const { return all_; }
  const Endpoint& current() const { return *all_[current_.load(std::memory_order_relaxed)]; }

  // Looks once whether the address in use is connected, and the others in order, each some time
  // after the one before it or once that one has failed. True: one is, and is in use now. `begin`:
  // of a series of such calls. Connections that are not made yet are begun, but make progress in
  // Poll only.
  bool TryConnect(absl::Time begin);
  // Returns at `end`, or when the state of an address that TryConnect tried may have changed.
  void Poll(absl::Time begin, absl::Time end) const;

 private:
  // The address in use first, then the others in order.
  std::vector<size_t> Order() const;

  std::vector<std::unique_ptr<Endpoint>> all_;
  std::atomic<size_t> current_ = 0;
};

// Waits for a change of the channel's state, to connect it meanwhile. gRPC connects only while
// somebody polls; a thread that sleeps does not, and the library's own look comes every 5 s.
void PollUntil(grpc::Channel& channel, absl::Time end);

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_ENDPOINTS_H_
