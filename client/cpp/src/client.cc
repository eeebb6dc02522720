#include "sparsefw/client/client.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/cpp/src/page_walk.h"
#include "client/cpp/src/rpc.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

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
  const RetryOptions& retry = options.retry;
  if (!(retry.initial_backoff > absl::ZeroDuration() &&
        retry.max_backoff >= retry.initial_backoff && retry.multiplier >= 1 &&
        retry.give_up_after >= absl::ZeroDuration())) {
    return Invalid("CLIENT_ARGUMENT",
                   "retry must have 0 < initial_backoff <= max_backoff, multiplier >= 1 and "
                   "give_up_after >= 0; got %s, %s, %g and %s",
                   absl::FormatDuration(retry.initial_backoff),
                   absl::FormatDuration(retry.max_backoff), retry.multiplier,
                   absl::FormatDuration(retry.give_up_after));
  }
  if (!options.traceparent.empty() && !IsTraceparent(options.traceparent)) {
    return Invalid("CLIENT_ARGUMENT",
                   "traceparent must be 00-<32 hex>-<16 hex>-<2 hex> in lower case; got %d bytes",
                   options.traceparent.size());
  }
  return absl::OkStatus();
}

// The entries of all pages, at most `limit` of them; 0: all. `fetch` answers `request`.
template <typename Page, typename Request, typename Entry, typename Fetch>
absl::StatusOr<std::vector<Entry>> AllPages(
    std::string_view method, int64_t limit, Request& request,
    google::protobuf::RepeatedPtrField<Entry>* (Page::*entries)(), const Fetch& fetch) {
  std::vector<Entry> all;
  internal::PageWalk walk(method);
  do {
    const int64_t wanted = limit > 0 ? limit - std::ssize(all) : kPage;
    request.set_page_size(static_cast<int32_t>(std::min(wanted, kPage)));
    Page page;
    SPARSEFW_RETURN_IF_ERROR(fetch(&page));
    const auto bytes = static_cast<int64_t>(page.ByteSizeLong());
    auto& found = *(page.*entries)();
    SPARSEFW_RETURN_IF_ERROR(walk.Take(found.size(), bytes, page.next_page_token()));
    std::ranges::move(found, std::back_inserter(all));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && (limit == 0 || std::ssize(all) < limit));
  return all;
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

absl::StatusOr<std::vector<v1::Tensor>> Client::ListTensors(const ListTensorsOptions& options,
                                                            const CallOptions& call) {
  v1::ListTensorsRequest request;
  for (const v1::TensorKind kind : options.kinds) request.add_kinds(kind);
  request.set_owner(options.owner);
  return AllPages<v1::ListTensorsResponse>(
      "ListTensors", options.limit, request, &v1::ListTensorsResponse::mutable_tensors,
      [&](v1::ListTensorsResponse* page) {
        return rpc_->Call("ListTensors", call, [&](grpc::ClientContext* context) {
          return rpc_->tensors().ListTensors(context, request, page);
        });
      });
}

absl::StatusOr<std::vector<v1::Upload>> Client::ListUploads(int64_t limit,
                                                            const CallOptions& call) {
  v1::ListUploadsRequest request;
  return AllPages<v1::ListUploadsResponse>(
      "ListUploads", limit, request, &v1::ListUploadsResponse::mutable_uploads,
      [&](v1::ListUploadsResponse* page) {
        return rpc_->Call("ListUploads", call, [&](grpc::ClientContext* context) {
          return rpc_->tensors().ListUploads(context, request, page);
        });
      });
}

absl::Status Client::DeleteUpload(const std::string& name, const CallOptions& call) {
  v1::DeleteUploadRequest request;
  request.set_name(name);
  google::protobuf::Empty empty;
  return rpc_->Delete("DeleteUpload", call, [&](grpc::ClientContext* context) {
    return rpc_->tensors().DeleteUpload(context, request, &empty);
  });
}

absl::StatusOr<v1::Tensor> Client::SumGrams(std::span<const std::string> grams,
                                            v1::DataType gram_dtype, const std::string& request_id,
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
  return rpc_->Delete("DeleteTensor", call, [&](grpc::ClientContext* context) {
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
  return AllPages<v1::ListJobsResponse>(
      "ListJobs", options.limit, request, &v1::ListJobsResponse::mutable_jobs,
      [&](v1::ListJobsResponse* page) {
        return rpc_->Call("ListJobs", call, [&](grpc::ClientContext* context) {
          return rpc_->jobs().ListJobs(context, request, page);
        });
      });
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
  return rpc_->Delete("DeleteJob", call, [&](grpc::ClientContext* context) {
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
