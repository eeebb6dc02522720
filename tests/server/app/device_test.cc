// A server where there are CUDA devices: those of the fake module.
#include <stdlib.h>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "server/runner/devices.h"
#include "sparsefw/reason.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

// Before anything asks the registry.
const int g_fake_cuda =
    setenv("SPARSEFW_CUDA_MODULE", SPARSEFW_BINARY_DIR "/tests/libsparsefw_fake_cuda.so", 1);

std::string DefaultOf(std::string_view flag) {
  const absl::StatusOr<DefaultDevice> chosen = ChooseDefaultDevice(flag);
  if (!chosen.ok()) return std::string(chosen.status().message());
  EXPECT_EQ(chosen->device.name, chosen->backend->Describe().name);
  return chosen->device.name + " because of " + chosen->reason;
}

TEST(DeviceTest, AutoIsTheFirstDevice) {
  ASSERT_EQ(g_fake_cuda, 0);
  EXPECT_EQ(DefaultOf("auto"), "cuda:0 because of auto: cuda:0 is the first device");
  EXPECT_EQ(DefaultOf(""), "cuda:0 because of auto: cuda:0 is the first device");
}

TEST(DeviceTest, AFlagIsObeyedOrRefused) {
  EXPECT_EQ(DefaultOf("cuda"), "cuda:0 because of --device cuda");
  EXPECT_EQ(DefaultOf("cuda:1"), "cuda:1 because of --device cuda:1");
  EXPECT_EQ(DefaultOf("cpu"), "cpu because of --device cpu");
  EXPECT_EQ(DefaultOf("cuda:5"),
            "device must be one of cuda:0, cuda:1, cpu, reference; got cuda:5");
}

using List = std::vector<const Backend*>;
List All() { return {Backends().begin(), Backends().end()}; }

TEST(DeviceTest, JobsGoWhereTheyAskTo) {
  const List otherwise = {*FindBackend("reference")};
  EXPECT_EQ(*ResolveDevices("", All(), otherwise), otherwise);
  EXPECT_EQ(*ResolveDevices("auto", All(), otherwise), otherwise);
  EXPECT_EQ(*ResolveDevices("cuda:1", All(), otherwise), List{Backends()[1]});
  EXPECT_EQ(*ResolveDevices("cuda", All(), otherwise), (List{Backends()[0], Backends()[1]}));
  EXPECT_EQ(*ResolveDevices("cpu", All(), otherwise), List{*FindBackend("cpu")});
  const absl::Status refused = ResolveDevices("cuda:5", All(), otherwise).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), "DEVICE_UNAVAILABLE");
}

TEST(DeviceTest, AListRestrictsTheServerToItsDevices) {
  EXPECT_EQ(ChooseDefaultDevice("cuda:1,0")->pool, (List{Backends()[1], Backends()[0]}));
  EXPECT_EQ(ChooseDefaultDevice("cuda:0,1")->usable, All());
  const absl::StatusOr<DefaultDevice> one = ChooseDefaultDevice("cuda:1");
  EXPECT_EQ(one->device.name, "cuda:1");
  EXPECT_EQ(one->usable, (List{Backends()[1], Backends()[2], Backends()[3]}));
  ASSERT_EQ(PoolDevices(*one, {}).size(), 1U);
  EXPECT_EQ(PoolDevices(*one, {})[0].name, "cuda:1");
  EXPECT_EQ(*ResolveDevices("cuda", one->usable, one->pool), List{Backends()[1]});
  const absl::Status refused = ResolveDevices("cuda:0", one->usable, one->pool).status();
  EXPECT_EQ(refused.message(),
            "device must be one that the server was started with: cuda:1, cpu, reference; got "
            "cuda:0");
  EXPECT_EQ(ReasonOf(refused), "DEVICE_UNAVAILABLE");
}

TEST(DeviceTest, AListNamesWhatIsWrongWithIt) {
  EXPECT_EQ(DefaultOf("cuda:0,5"),
            "device must be one of cuda:0, cuda:1, cpu, reference; got cuda:5");
  EXPECT_EQ(DefaultOf("cuda:0,1,0"),
            "device must name each device once, and names cuda:0 twice; got cuda:0,1,0");
  for (const auto& [list, entry] :
       {std::pair("cuda:", ""), std::pair("cuda:0,", ""), std::pair("cuda:0,x", "x"),
        std::pair("cuda:99999999999", "99999999999")}) {
    EXPECT_EQ(DefaultOf(list),
              absl::StrFormat("device must be cuda:N[,N], each N the number of a device, which "
                              "\"%s\" is not; got %s",
                              entry, list));
  }
}

TEST(DeviceTest, TheDefaultMeansTheDevicesThatItNames) {
  EXPECT_EQ(ChooseDefaultDevice("auto")->pool.size(), 2U);
  EXPECT_EQ(ChooseDefaultDevice("cuda")->pool.size(), 2U);
  EXPECT_EQ(ChooseDefaultDevice("cuda:1")->pool, std::vector{Backends()[1]});
  EXPECT_EQ(ChooseDefaultDevice("cpu")->pool, std::vector{*FindBackend("cpu")});
}

TEST(DeviceTest, ThePoolIsEveryCudaDeviceWithAShareOfItsFreeMemory) {
  const DefaultDevice all = *ChooseDefaultDevice("auto");
  const std::vector<PoolDevice> shares = PoolDevices(all, {.memory_share = 0.5, .streams = 3});
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[1].name, "cuda:1");
  EXPECT_EQ(shares[1].memory_bytes, int64_t{1} << 29);
  EXPECT_EQ(shares[1].streams, 3);
  EXPECT_EQ(PoolDevices(all, {.memory_bytes = 1000})[0].memory_bytes, 1000);
}

TEST(DeviceTest, GramSumsTakeOfWhatJobsLeaveFree) {
  DefaultDevice chosen = *ChooseDefaultDevice("auto");
  constexpr int64_t kGiB = int64_t{1} << 30;
  chosen.free_bytes["cuda:0"] = 20 * kGiB;
  EXPECT_EQ(SumMemory(chosen, {.memory_share = 0.9}), 2 * kGiB - kGiB / 2);
  EXPECT_EQ(SumMemory(chosen, {.memory_share = 0.45}), kGiB) << "a ninth of what is for jobs";
  EXPECT_EQ(SumMemory(chosen, {.memory_bytes = 9 * kGiB}), kGiB);
  EXPECT_EQ(SumMemory(chosen, {.memory_share = 1.0}), 0);
  EXPECT_EQ(SumMemory(chosen, {.memory_bytes = 30 * kGiB}), 0);
  EXPECT_EQ(SumMemory(*ChooseDefaultDevice("cpu"), {}), 0);
}

TEST(DeviceTest, MemoryOfTheHostIsNotThatOfTheDevice) {
  EXPECT_EQ(HostMemoryBytes(), (*FindBackend("cpu"))->Describe().memory_bytes);
  EXPECT_NE(HostMemoryBytes(), Backends().front()->Describe().memory_bytes);
}

TEST(DeviceTest, AServerComputesOnThem) {
  TestServer server;
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server.jobs->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  ASSERT_EQ(info.devices_size(), 4);
  EXPECT_EQ(info.devices(1).name(), "cuda:1");
  EXPECT_EQ(info.devices(1).description(), "Fake GPU B");
  EXPECT_EQ(info.devices(1).memory_bytes(), int64_t{2} << 30);
  EXPECT_EQ(info.devices(1).memory_free_bytes(), int64_t{1} << 30);
  EXPECT_EQ(info.devices(1).job_memory_bytes(), static_cast<int64_t>(0.9 * (1 << 30)));
  EXPECT_EQ(info.devices(1).streams(), 4);
  EXPECT_EQ(info.devices(2).streams(), 0) << "the CPU is not of the pool";
  EXPECT_FALSE(info.devices(1).lost());
  EXPECT_EQ(info.default_device(), "cuda:0");
  EXPECT_EQ(server.server->device(), "cuda:0");

  v1::JobSpec spec = server.Layer(8, 16, 10);
  spec.set_product_precision(v1::PRODUCT_PRECISION_BF16);
  v1::Job job = server.WaitForEnd(server.MustCreate(spec).name());
  EXPECT_EQ(job.result().device(), "cuda:1") << "it has more memory";
  EXPECT_EQ(job.spec().product_precision(), v1::PRODUCT_PRECISION_BF16);
  for (const auto& [asked, used] :
       {std::pair("cuda:0", "cuda:0"), std::pair("cuda", "cuda:1"), std::pair("cpu", "cpu")}) {
    spec.set_device(asked);
    job = server.WaitForEnd(server.MustCreate(spec).name());
    EXPECT_EQ(job.result().device(), used);
  }
  spec.set_device("cuda:2");
  EXPECT_TRUE(Failed(server.CreateJob(spec, &job), grpc::FAILED_PRECONDITION, "DEVICE_UNAVAILABLE",
                     "device must be one of cuda:0, cuda:1, cpu, reference; got cuda:2"));
}

}  // namespace
}  // namespace sparsefw::server
