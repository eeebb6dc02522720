// A server that takes uploads and drops the bytes: what gRPC itself costs, with the same
// callback API, messages and allocator settings as sparsefw-server.
#include <grpcpp/grpcpp.h>
#include <malloc.h>

#include <cstdio>
#include <string>

#include "sparsefw/v1/tensor_service.grpc.pb.h"

namespace v1 = sparsefw::v1;

namespace {

class Sink final : public v1::TensorService::CallbackService {
 public:
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
    return new Stream(response);
  }

 private:
  class Stream final : public grpc::ServerReadReactor<v1::WriteTensorRequest> {
   public:
    explicit Stream(v1::WriteTensorResponse* response) : response_(response) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) {
        response_->set_committed_size(bytes_);
        response_->mutable_tensor()->set_name("tensors/sink");
        return Finish(grpc::Status::OK);
      }
      bytes_ += static_cast<int64_t>(request_.chunk().data().size());
      StartRead(&request_);
    }
    void OnDone() override { delete this; }

   private:
    v1::WriteTensorResponse* const response_;
    v1::WriteTensorRequest request_;
    int64_t bytes_ = 0;
  };
};

}  // namespace

int main() {
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  Sink sink;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&sink);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
}
