#include "sparsefw/client/health.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>
#include <vector>

#include "client/cpp/src/rpc.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

// HealthCheckRequest for the whole server is the empty message, and HealthCheckResponse has one
// field: status = 1, of which SERVING is 1. Two bytes are no reason for a second proto file.
constexpr char kMethod[] = "/grpc.health.v1.Health/Check";
constexpr std::string_view kServing("\x08\x01", 2);

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace

absl::Status CheckHealth(const std::string& address, ClientOptions options) {
  options.token.clear();
  const absl::Duration timeout = options.connect_timeout;
  internal::Rpc rpc(address, std::move(options));
  SPARSEFW_RETURN_IF_ERROR(rpc.CheckArguments());
  SPARSEFW_RETURN_IF_ERROR(rpc.WaitUntilConnected());

  grpc::ClientContext context;
  rpc.AddMetadata(&context);
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  grpc::GenericStub stub(rpc.control_channel());
  grpc::CompletionQueue queue;
  const grpc::Slice empty;
  const auto call = stub.PrepareUnaryCall(&context, kMethod, grpc::ByteBuffer(&empty, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (!status.ok()) {
    return Refuse(absl::StatusCode::kUnavailable, "UNREACHABLE",
                  "%s was reached and does not say how it is: %s", address, status.error_message());
  }
  if (BytesOf(answer) == kServing) return absl::OkStatus();
  return Refuse(absl::StatusCode::kUnavailable, "NOT_SERVING",
                "%s is not serving: it drains, or has lost its devices", address);
}

}  // namespace sparsefw::client
