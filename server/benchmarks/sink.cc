// A server that takes uploads and keeps nothing: what gRPC itself costs, with the same callback
// API, messages and allocator settings as sparsefw-server. Flags add, one by one, what every
// server that keeps its word has to do, so that the cost of each can be seen:
//
//   --checksum      the CRC32C of every chunk
//   --file FOLDER   the bytes into a file there
//   --sync          fdatasync of that file before the answer
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>

#include "sparsefw/crc32c.h"
#include "sparsefw/v1/prune_service.grpc.pb.h"
#include "sparsefw/v1/tensor_service.grpc.pb.h"

namespace v1 = sparsefw::v1;

namespace {

struct Work {
  bool checksum = false;
  bool sync = false;
  std::string folder;
};

class Sink final : public v1::TensorService::CallbackService {
 public:
  explicit Sink(const Work& work) : work_(work) {}

  grpc::ServerUnaryReactor* CreateUpload(grpc::CallbackServerContext* context,
                                         const v1::CreateUploadRequest* request,
                                         v1::CreateUploadResponse* response) override {
    response->mutable_upload()->set_name("uploads/sink");
    *response->mutable_upload()->mutable_spec() = request->tensor();
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerReadReactor<v1::WriteTensorRequest>* WriteTensor(
      grpc::CallbackServerContext* /*context*/, v1::WriteTensorResponse* response) override {
    return new Stream(work_, ++streams_, response);
  }

 private:
  class Stream final : public grpc::ServerReadReactor<v1::WriteTensorRequest> {
   public:
    Stream(const Work& work, int number, v1::WriteTensorResponse* response)
        : work_(work), response_(response) {
      if (!work_.folder.empty()) {
        const std::string path = work_.folder + "/sink" + std::to_string(number);
        fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        unlink(path.c_str());
      }
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) {
        if (work_.sync && fdatasync(fd_) != 0) return Fail();
        response_->set_committed_size(bytes_);
        response_->mutable_tensor()->set_name("tensors/sink");
        return Finish(grpc::Status::OK);
      }
      const std::string& data = request_.chunk().data();
      const auto size = static_cast<ssize_t>(data.size());
      if (work_.checksum &&
          sparsefw::Crc32c(std::as_bytes(std::span(data))) != request_.chunk().crc32c()) {
        return Fail();
      }
      if (!work_.folder.empty() && pwrite(fd_, data.data(), data.size(), bytes_) != size) {
        return Fail();
      }
      bytes_ += size;
      StartRead(&request_);
    }
    void OnDone() override {
      if (fd_ >= 0) close(fd_);
      delete this;
    }

   private:
    void Fail() { Finish(grpc::Status::CANCELLED); }

    const Work& work_;
    v1::WriteTensorResponse* const response_;
    v1::WriteTensorRequest request_;
    int64_t bytes_ = 0;
    int fd_ = -1;
  };

  const Work& work_;
  std::atomic<int> streams_{0};
};

// The unary call of the latency measurement.
class Info final : public v1::PruneService::CallbackService {
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* /*request*/,
                                          v1::ServerInfo* /*response*/) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int Usage() {
  std::fprintf(stderr, "usage: sparsefw-bench-sink [--checksum] [--file FOLDER [--sync]]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Work work;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--checksum") == 0) {
      work.checksum = true;
    } else if (std::strcmp(argv[i], "--sync") == 0) {
      work.sync = true;
    } else if (std::strcmp(argv[i], "--file") == 0 && i + 1 < argc) {
      work.folder = argv[++i];
    } else {
      return Usage();
    }
  }
  if (work.sync && work.folder.empty()) return Usage();
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  Sink sink(work);
  Info info;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&sink);
  builder.RegisterService(&info);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
}
