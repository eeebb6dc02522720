#include "server/app/observe/rpc_log.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/v1/prune_service.pb.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Logged(const absl::Status& status, const CallSubject& subject,
                   const std::string& tenant = "alice", const char* level = "debug") {
  ::testing::internal::CaptureStderr();
  Logger logger(level, "text");
  LogRpc({"PruneService/GetJob", status, absl::Milliseconds(2), "ipv4:127.0.0.1:9", tenant, subject,
          "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
         &logger);
  return ::testing::internal::GetCapturedStderr();
}

TEST(RpcLogTest, NamesWhatTheCallIsAbout) {
  const std::string line = Logged(absl::NotFoundError("no such job"), {"request", "jobs/1"});
  EXPECT_THAT(line, HasSubstr(" info rpc method=PruneService/GetJob code=NOT_FOUND ms=2 "));
  EXPECT_THAT(line, HasSubstr(" tenant=alice job=jobs/1 request_id=request traceparent=00-4bf9"));
  EXPECT_THAT(line, HasSubstr(" message=\"no such job\""));
  EXPECT_THAT(Logged(absl::OkStatus(), {"", "uploads/2"}), HasSubstr(" upload=uploads/2 "));
  EXPECT_THAT(Logged(absl::OkStatus(), {"", "tensors/3"}), HasSubstr(" tensor=tensors/3 "));
  EXPECT_THAT(Logged(absl::OkStatus(), {"", "x\ny"}), HasSubstr(" name=\"x\\ny\" "));
}

TEST(RpcLogTest, LeavesOutWhatIsNotKnown) {
  const std::string line = Logged(absl::OkStatus(), {}, "");
  for (const char* key : {"tenant=", "job=", "name=", "request_id=", "message="}) {
    EXPECT_THAT(line, Not(HasSubstr(key)));
  }
}

TEST(RpcLogTest, OnlyErrorsAtLevelInfo) {
  EXPECT_THAT(Logged(absl::OkStatus(), {}, "alice", "info"), IsEmpty());
  EXPECT_THAT(Logged(absl::CancelledError(""), {}, "alice", "info"), IsEmpty());
  EXPECT_THAT(Logged(absl::InternalError("x"), {}, "alice", "info"), Not(IsEmpty()));
}

TEST(CallSubjectTest, OfMessages) {
  v1::CreateJobRequest create;
  create.set_request_id("r");
  EXPECT_EQ(SubjectOf(create).request_id, "r");
  EXPECT_EQ(SubjectOf(create).resource, "");
  v1::GetTensorRequest get;
  get.set_name("tensors/1");
  EXPECT_EQ(SubjectOf(get).resource, "tensors/1");
  v1::CreateUploadResponse created;
  created.mutable_upload()->set_name("uploads/1");
  EXPECT_EQ(ResourceOf(created), "uploads/1");
  created.mutable_tensor()->set_name("tensors/2");
  EXPECT_EQ(ResourceOf(created), "tensors/2");
  EXPECT_EQ(ResourceOf(v1::ServerInfo()), "");
}

}  // namespace
}  // namespace sparsefw::server
