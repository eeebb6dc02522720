#include "server/benchmarks/watchers.h"

#include "core/benchmarks/programs/bench_program.h"

namespace sparsefw::bench {
namespace {

constexpr int64_t kStreamsOfAConnection = 200;

std::unique_ptr<v1::PruneService::Stub> NewConnection(const std::string& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::PruneService::NewStub(
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace

struct Watchers::Stream {
  enum class Waits { kStart, kEvent, kStatus };
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncReader<v1::JobEvent>> reader;
  v1::JobEvent event;
  grpc::Status status;
  Waits waits = Waits::kStart;
  bool seen = false;
};

Watchers::Watchers(const std::string& server, const std::string& job, int64_t count) {
  v1::WatchJobRequest request;
  request.set_name(job);
  for (int64_t i = 0; i < count; ++i) {
    if (i % kStreamsOfAConnection == 0) stubs_.push_back(NewConnection(server));
    streams_.push_back(std::make_unique<Stream>());
    Stream& stream = *streams_.back();
    stream.reader = stubs_.back()->AsyncWatchJob(&stream.context, request, &queue_, &stream);
  }
  Read(count);
  thread_ = std::thread([this, count] { Read(count); });
}

Watchers::~Watchers() = default;

int64_t Watchers::Join() {
  thread_.join();
  return events_;
}

// Until that many streams have had their first event; then until that many have ended.
void Watchers::Read(int64_t streams) {
  void* tag = nullptr;
  bool ok = false;
  while (streams > 0 && queue_.Next(&tag, &ok)) {
    Stream& stream = *static_cast<Stream*>(tag);
    if (stream.waits == Stream::Waits::kStatus) {
      if (!stream.status.ok()) Die("a watcher failed: " + stream.status.error_message());
      --streams;
      continue;
    }
    if (stream.waits == Stream::Waits::kEvent && ok) {
      ++events_;
      if (!stream.seen) --streams;
      stream.seen = true;
    }
    stream.waits = ok ? Stream::Waits::kEvent : Stream::Waits::kStatus;
    if (ok) {
      stream.reader->Read(&stream.event, &stream);
    } else {
      stream.reader->Finish(&stream.status, &stream);
    }
  }
}

}  // namespace sparsefw::bench
