#include "sparsefw/client/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/src/page_walk.h"
#include "client/cpp/src/rpc.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::client {
namespace {

constexpr int64_t kPage = 1000;

absl::Status CheckOptions(const ClientOptions& options) {
  if (options.chunk_bytes < 1 || options.chunk_bytes > ClientOptions::kMaxChunkBytes) {
    return Invalid("CLIENT_ARGUMENT", "chunk_bytes must be in [1, %d]; got chunk_bytes=%d",
                   ClientOptions::kMaxChunkBytes, options.chunk_bytes);
  }
  if (options.watch_silence < absl::Milliseconds(300)) {
    return Invalid("CLIENT_ARGUMENT", "watch_silence must be at least 300ms; got %s",
                   absl::FormatDuration(options.watch_silence));
  }
  if (!options.traceparent.empty() && !IsTraceparent(options.traceparent)) {
    return Invalid("CLIENT_ARGUMENT",
                   "traceparent must be 00-<32 hex>-<16 hex>-<2 hex> in lower case; got %d bytes",
                   options.traceparent.size());
  }
  return absl::OkStatus();
}

}  // namespace

Client::Client(std::unique_ptr<internal::Rpc> rpc) : rpc_(std::move(rpc)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& address,
                                                        ClientOptions options) {
  SPARSEFW_RETURN_IF_ERROR(CheckOptions(options));
  if (options.traceparent.empty()) options.traceparent = NewTraceparent();
  auto rpc = std::make_unique<internal::Rpc>(address, std::move(options));
  SPARSEFW_RETURN_IF_ERROR(rpc->CheckArguments());
  SPARSEFW_RETURN_IF_ERROR(rpc->WaitUntilConnected());
  return std::unique_ptr<Client>(new Client(std::move(rpc)));
}

const std::string& Client::address() const { return rpc_->address(); }

absl::StatusOr<v1::Tensor> Client::GetTensor(const std::string& name, const CallOptions& call) {
  v1::GetTensorRequest request;
  request.set_name(name);
  v1::Tensor tensor;
  SPARSEFW_RETURN_IF_ERROR(rpc_->Call("GetTensor", call, [&](grpc::ClientContext* context) {
    return rpc_->tensors().GetTensor(context, request, &tensor);
  }));
  return tensor;
}

absl::StatusOr<std::vector<v1::Tensor>> Client::ListTensors(int64_t limit,
                                                            const CallOptions& call) {
  std::vector<v1::Tensor> tensors;
  v1::ListTensorsRequest request;
  internal::PageWalk walk("ListTensors");
  do {
    const int64_t left = limit == 0 ? kPage : limit - std::ssize(tensors);
    request.set_page_size(static_cast<int32_t>(std::min<int64_t>(left, kPage)));
    v1::ListTensorsResponse page;
    SPARSEFW_RETURN_IF_ERROR(rpc_->Call("ListTensors", call, [&](grpc::ClientContext* context) {
      return rpc_->tensors().ListTensors(context, request, &page);
    }));
    SPARSEFW_RETURN_IF_ERROR(walk.Take(
        page.tensors_size(), static_cast<int64_t>(page.ByteSizeLong()), page.next_page_token()));
    for (v1::Tensor& tensor : *page.mutable_tensors()) tensors.push_back(std::move(tensor));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && (limit == 0 || std::ssize(tensors) < limit));
  return tensors;
}

absl::StatusOr<v1::Tensor> Client::SumGrams(std::span<const std::string> grams,
                                            v1::DType gram_dtype, const std::string& request_id,
                                            const CallOptions& call) {
  v1::SumGramsRequest request;
  request.mutable_grams()->Assign(grams.begin(), grams.end());
  request.set_gram_dtype(gram_dtype);
  request.set_request_id(request_id.empty() ? internal::NewRequestId() : request_id);
  request.set_owner(rpc_->options().owner);
  v1::Tensor sum;
  SPARSEFW_RETURN_IF_ERROR(rpc_->Call("SumGrams", call, [&](grpc::ClientContext* context) {
    return rpc_->tensors().SumGrams(context, request, &sum);
  }));
  return sum;
}

absl::Status Client::DeleteTensor(const std::string& name, const CallOptions& call) {
  v1::DeleteTensorRequest request;
  request.set_name(name);
  google::protobuf::Empty empty;
  return rpc_->Call("DeleteTensor", call, [&](grpc::ClientContext* context) {
    return rpc_->tensors().DeleteTensor(context, request, &empty);
  });
}

absl::StatusOr<v1::Job> Client::CreateJob(const v1::JobSpec& spec, const std::string& request_id,
                                          const CallOptions& call) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(request_id.empty() ? internal::NewRequestId() : request_id);
  request.set_owner(rpc_->options().owner);
  v1::Job job;
  SPARSEFW_RETURN_IF_ERROR(rpc_->Call("CreateJob", call, [&](grpc::ClientContext* context) {
    return rpc_->jobs().CreateJob(context, request, &job);
  }));
  return job;
}

absl::Status Client::ValidateJob(const v1::JobSpec& spec, const CallOptions& call) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec;
  request.set_validate_only(true);
  request.set_owner(rpc_->options().owner);
  v1::Job job;
  return rpc_->Call("CreateJob", call, [&](grpc::ClientContext* context) {
    return rpc_->jobs().CreateJob(context, request, &job);
  });
}

absl::Status Client::CheckJobOptions(const v1::CheckJobOptionsRequest& request,
                                     const CallOptions& call) {
  v1::CheckJobOptionsResponse response;
  return rpc_->Call("CheckJobOptions", call, [&](grpc::ClientContext* context) {
    return rpc_->jobs().CheckJobOptions(context, request, &response);
  });
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& name, const CallOptions& call) {
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  SPARSEFW_RETURN_IF_ERROR(rpc_->Call("GetJob", call, [&](grpc::ClientContext* context) {
    return rpc_->jobs().GetJob(context, request, &job);
  }));
  return job;
}

absl::StatusOr<std::vector<v1::Job>> Client::ListJobs(const ListJobsOptions& options,
                                                      const CallOptions& call) {
  v1::ListJobsRequest request;
  for (const v1::JobState state : options.states) request.add_states(state);
  request.mutable_labels()->insert(options.labels.begin(), options.labels.end());
  std::vector<v1::Job> jobs;
  internal::PageWalk walk("ListJobs");
  do {
    const int64_t wanted = options.limit - static_cast<int64_t>(jobs.size());
    request.set_page_size(
        static_cast<int32_t>(options.limit > 0 ? std::min(wanted, kPage) : kPage));
    v1::ListJobsResponse page;
    SPARSEFW_RETURN_IF_ERROR(rpc_->Call("ListJobs", call, [&](grpc::ClientContext* context) {
      return rpc_->jobs().ListJobs(context, request, &page);
    }));
    SPARSEFW_RETURN_IF_ERROR(walk.Take(page.jobs_size(), static_cast<int64_t>(page.ByteSizeLong()),
                                       page.next_page_token()));
    for (v1::Job& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() &&
           (options.limit == 0 || static_cast<int64_t>(jobs.size()) < options.limit));
  return jobs;
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& name, const CallOptions& call) {
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::Job job;
  SPARSEFW_RETURN_IF_ERROR(rpc_->Call("CancelJob", call, [&](grpc::ClientContext* context) {
    return rpc_->jobs().CancelJob(context, request, &job);
  }));
  return job;
}

absl::Status Client::DeleteJob(const std::string& name, const CallOptions& call) {
  v1::DeleteJobRequest request;
  request.set_name(name);
  google::protobuf::Empty empty;
  return rpc_->Call("DeleteJob", call, [&](grpc::ClientContext* context) {
    return rpc_->jobs().DeleteJob(context, request, &empty);
  });
}

absl::StatusOr<v1::ServerInfo> Client::GetServerInfo(const CallOptions& call) {
  v1::ServerInfo info;
  SPARSEFW_RETURN_IF_ERROR(rpc_->Call("GetServerInfo", call, [&](grpc::ClientContext* context) {
    return rpc_->jobs().GetServerInfo(context, v1::GetServerInfoRequest(), &info);
  }));
  return info;
}

}  // namespace sparsefw::client
