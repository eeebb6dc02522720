// The loader of the CUDA module: everything that it can come upon.
#include "core/src/backends/cuda_module.h"

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "core/src/cuda/module.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::TempFolder;
using ::sparsefw::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kFake[] = SPARSEFW_BINARY_DIR "/tests/libsparsefw_fake_cuda.so";
constexpr char kNoModule[] = SPARSEFW_BINARY_DIR "/tests/libsparsefw_no_cuda.so";

class CudaModuleTest : public ::testing::Test {
 protected:
  ~CudaModuleTest() override { unsetenv("SPARSEFW_FAKE_CUDA"); }

  CudaDevices OpenFake(const char* behaviour) {
    setenv("SPARSEFW_FAKE_CUDA", behaviour, 1);
    return FindCudaDevices(kFake, folder_.path());
  }
  std::string WhyNot(const CudaDevices& found) {
    EXPECT_TRUE(found.devices.empty());
    return found.reason;
  }

  TempFolder folder_;
};

TEST_F(CudaModuleTest, FindsDevicesInTheirOrder) {
  const CudaDevices found = FindCudaDevices(kFake, folder_.path());
  ASSERT_EQ(found.devices.size(), 2U) << found.reason;
  EXPECT_EQ(found.devices[0].name, "cuda:0");
  EXPECT_EQ(found.devices[1].name, "cuda:1");
  EXPECT_EQ(found.devices[1].backend->name(), "cuda");
  EXPECT_EQ(found.devices[1].backend->Describe().memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(found.devices[1].backend->Describe().pci_bus_id, "00000000:03:00.0");
  EXPECT_EQ(found.reason, "cuda:0 is Fake GPU A, cuda:1 is Fake GPU B");
}

TEST_F(CudaModuleTest, NoneAndEmptyTurnItOff) {
  std::filesystem::copy(kFake, folder_.File(kCudaModuleFile));
  EXPECT_EQ(WhyNot(FindCudaDevices("none", folder_.path())),
            "SPARSEFW_CUDA_MODULE=none turns CUDA off");
  EXPECT_EQ(WhyNot(FindCudaDevices("", folder_.path())), "SPARSEFW_CUDA_MODULE= turns CUDA off");
}

TEST_F(CudaModuleTest, LooksBesideTheProgramThenInLibThenInBin) {
  EXPECT_EQ(WhyNot(FindCudaDevices(nullptr, folder_.File("programs"))),
            "no CUDA module libsparsefw_cuda.so beside the program");
  // The later places hold the module, the earlier ones, made one by one, do not.
  for (const char* place : {"bin", "lib", "lib/sparsefw", "programs"}) {
    std::filesystem::create_directory(folder_.File(place));
  }
  const std::string module = std::string("/") + kCudaModuleFile;
  std::filesystem::copy(kFake, folder_.File("bin" + module));
  EXPECT_EQ(FindCudaDevices(nullptr, folder_.File("programs")).devices.size(), 2U);
  // Where `cmake --install` puts it.
  WriteFile(folder_.File("lib/sparsefw" + module), "text");
  EXPECT_THAT(WhyNot(FindCudaDevices(nullptr, folder_.File("programs"))),
              HasSubstr("/lib/sparsefw" + module));
  WriteFile(folder_.File("lib" + module), "text");
  EXPECT_THAT(WhyNot(FindCudaDevices(nullptr, folder_.File("programs"))),
              HasSubstr("/lib" + module));
  std::filesystem::copy(kFake, folder_.File("programs" + module));
  EXPECT_EQ(FindCudaDevices(nullptr, folder_.File("programs")).devices.size(), 2U);
}

TEST_F(CudaModuleTest, APathThatIsWrongIsNamedAndNothingElseIsTried) {
  std::filesystem::copy(kFake, folder_.File(kCudaModuleFile));
  const std::string missing = folder_.File("missing.so");
  EXPECT_THAT(WhyNot(FindCudaDevices(missing.c_str(), folder_.path())),
              AllOf(StartsWith("cannot load the CUDA module: "), HasSubstr(missing)));
  // A bare name is a file of the working directory, not of the system.
  EXPECT_THAT(WhyNot(FindCudaDevices("libm.so.6", folder_.path())),
              HasSubstr(std::filesystem::current_path().string() + "/libm.so.6"));
}

TEST_F(CudaModuleTest, AFileThatIsNoModuleIsNamed) {
  const std::string text = folder_.File("text.so");
  WriteFile(text, "not a library");
  EXPECT_THAT(WhyNot(FindCudaDevices(text.c_str(), folder_.path())),
              AllOf(StartsWith("cannot load the CUDA module: "), HasSubstr(text)));
  EXPECT_EQ(WhyNot(FindCudaDevices(kNoModule, folder_.path())),
            std::string(kNoModule) + " is not a CUDA module: it has no sparsefw_cuda_module");
}

TEST_F(CudaModuleTest, AModuleOfAnotherBuildIsNotOpened) {
  EXPECT_EQ(WhyNot(OpenFake("other_build")),
            std::string("the CUDA module ") + kFake +
                " was made for another build (it says \"sparsefw 0.0.1, layout 0, of a test\", "
                "this program is \"" +
                kCudaModuleBuild + "\")");
  EXPECT_THAT(kCudaModuleBuild,
              AllOf(StartsWith("sparsefw " SPARSEFW_VERSION ", layout "),
                    HasSubstr(", layout " + std::to_string(kCudaModuleAbi) + ", absl 2"),
                    HasSubstr(", compiler ")));
}

TEST_F(CudaModuleTest, WhatTheModuleSaysIsPassedOn) {
  EXPECT_EQ(WhyNot(OpenFake("no_driver")), "no CUDA driver: libcuda.so.1 is not installed");
  EXPECT_EQ(WhyNot(OpenFake("no_device")), std::string("the CUDA module ") + kFake + " found none");
  EXPECT_EQ(WhyNot(OpenFake("exception")), "the CUDA module failed: thrown on purpose");
}

TEST_F(CudaModuleTest, TheEnvironmentOfTheProcessCounts) {
  setenv("SPARSEFW_CUDA_MODULE", kFake, 1);
  EXPECT_EQ(FindCudaDevices().devices.size(), 2U);
  setenv("SPARSEFW_CUDA_MODULE", "none", 1);
  EXPECT_EQ(WhyNot(FindCudaDevices()), "SPARSEFW_CUDA_MODULE=none turns CUDA off");
}

}  // namespace
}  // namespace sparsefw
