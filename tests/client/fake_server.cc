#include "tests/client/fake_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace sparsefw::client::testing {

grpc::Status Error(grpc::StatusCode code, const std::string& message, const std::string& reason,
                   const std::map<std::string, std::string>& metadata, int64_t retry_delay_ms) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("sparsefw");
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  status.add_details()->PackFrom(info);
  if (retry_delay_ms >= 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_delay_ms / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(retry_delay_ms % 1000) * 1'000'000);
    status.add_details()->PackFrom(retry);
  }
  return grpc::Status(code, message, status.SerializeAsString());
}

void AwaitCancelled(grpc::ServerContext* context) {
  while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

grpc::Status FakePruneService::CreateJob(grpc::ServerContext* context,
                                         const v1::CreateJobRequest* request, v1::Job* job) {
  created.push_back(*request);
  if (!create_faults.empty()) {
    const grpc::Status fault = create_faults.front();
    create_faults.pop_front();
    return fault;
  }
  if (request->validate_only()) return grpc::Status::OK;
  std::string& name = requests_[request->request_id()];
  if (name.empty()) {
    name = "jobs/" + std::to_string(jobs.size() + 1);
    jobs[name].set_name(name);
    *jobs[name].mutable_spec() = request->spec();
    jobs[name].set_state(v1::JOB_STATE_QUEUED);
  }
  if (lost_creates > 0) {
    --lost_creates;
    return grpc::Status(grpc::UNAVAILABLE, "connection reset");
  }
  if (late_creates > 0) {
    --late_creates;
    AwaitCancelled(context);
  }
  *job = jobs[name];
  return grpc::Status::OK;
}

grpc::Status FakePruneService::CheckJobOptions(grpc::ServerContext*,
                                               const v1::CheckJobOptionsRequest* request,
                                               v1::CheckJobOptionsResponse*) {
  checked.push_back(*request);
  return check_status;
}

grpc::Status FakePruneService::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                      v1::Job* job) {
  const auto found = jobs.find(request->name());
  if (found == jobs.end()) {
    return Error(grpc::NOT_FOUND, "no job " + request->name(), "JOB_NOT_FOUND");
  }
  *job = found->second;
  return grpc::Status::OK;
}

grpc::Status FakePruneService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                        v1::ListJobsResponse* response) {
  page_sizes.push_back(request->page_size());
  if (list) {
    list(static_cast<int>(page_sizes.size()) - 1, response);
    return grpc::Status::OK;
  }
  auto next = request->page_token().empty() ? jobs.begin() : jobs.find(request->page_token());
  // Two to a page, however many were asked for: a server may give fewer.
  for (int i = 0; i < 2 && i < request->page_size() && next != jobs.end(); ++i, ++next) {
    *response->add_jobs() = next->second;
  }
  if (next != jobs.end()) response->set_next_page_token(next->first);
  return grpc::Status::OK;
}

grpc::Status FakePruneService::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                         v1::Job* job) {
  cancelled.push_back(request->name());
  *job = jobs[request->name()];
  return grpc::Status::OK;
}

grpc::Status FakePruneService::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                                         google::protobuf::Empty*) {
  if (jobs.erase(request->name()) == 0) {
    return Error(grpc::NOT_FOUND, "no job " + request->name(), "JOB_NOT_FOUND");
  }
  return lost_deletes-- > 0 ? grpc::Status(grpc::UNAVAILABLE, "connection reset")
                            : grpc::Status::OK;
}

grpc::Status FakePruneService::WatchJob(grpc::ServerContext* context,
                                        const v1::WatchJobRequest* request,
                                        grpc::ServerWriter<v1::JobEvent>* writer) {
  watched_after.push_back(request->after_revision());
  heartbeats_ms.push_back(request->heartbeat_interval().seconds() * 1000 +
                          request->heartbeat_interval().nanos() / 1'000'000);
  if (watches.empty()) {
    return Error(grpc::NOT_FOUND, "no job " + request->name(), "JOB_NOT_FOUND");
  }
  const WatchScript script = watches.front();
  watches.pop_front();
  for (const v1::JobEvent& event : script.events) {
    if (!writer->Write(event)) return grpc::Status::CANCELLED;
  }
  if (script.silent) AwaitCancelled(context);
  return script.status;
}

grpc::Status FakePruneService::Prune(
    grpc::ServerContext*, grpc::ServerReaderWriter<v1::PruneResponse, v1::PruneRequest>* stream) {
  v1::PruneRequest request;
  while (stream->Read(&request)) pruned.push_back(request);
  // A copy: a client that cancels goes on while this still writes, and its test sets others.
  const std::vector<v1::PruneResponse> responses = prune_responses;
  for (const v1::PruneResponse& response : responses) stream->Write(response);
  return prune_status;
}

grpc::Status FakePruneService::GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                                             v1::ServerInfo* info) {
  info->set_version("fake");
  return grpc::Status::OK;
}

FakeServer::FakeServer() { Start(); }
FakeServer::~FakeServer() { Stop(); }

std::string FakeServer::address() const { return "127.0.0.1:" + std::to_string(port_); }

void FakeServer::Start() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(&tensors);
  builder.RegisterService(&jobs);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
}

void FakeServer::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_ = nullptr;
}

}  // namespace sparsefw::client::testing
