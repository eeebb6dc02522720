// Devices, versions, errors.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/runtime.h"

namespace cuda_on_host {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

std::atomic<bool> memory_pools_supported = true;
std::atomic<int64_t> property_queries = 0;
std::atomic<unsigned> device_flags[8] = {};  // of the first devices

std::atomic<cudaError_t> fault = cudaSuccess;
std::atomic<int64_t> calls_to_fault = 0;

int DeviceCount() {
  const char* count = std::getenv("SPARSEFW_CUDA_ON_HOST_DEVICES");
  return count == nullptr ? 1 : std::atoi(count);
}

// Counts a call.
cudaError_t Fault() {
  if (fault.load() == cudaSuccess) return cudaSuccess;
  return calls_to_fault.fetch_sub(1) <= 1 ? fault.load() : cudaSuccess;
}

// SPARSEFW_CUDA_ON_HOST_FAULT: "<device>:<calls>".
struct DeviceFault {
  DeviceFault() {
    const char* text = std::getenv("SPARSEFW_CUDA_ON_HOST_FAULT");
    int the_device = -1;
    long long count = 0;
    if (text != nullptr && std::sscanf(text, "%d:%lld", &the_device, &count) == 2) {
      device = the_device;
      calls = count;
    }
  }
  std::atomic<int> device = -1;
  std::atomic<int64_t> calls = 0;
};

DeviceFault& TheDeviceFault() {
  static auto* device_fault = new DeviceFault;
  return *device_fault;
}

// Counts a call on the device.
cudaError_t FaultOf(int device) {
  if (device != TheDeviceFault().device) return cudaSuccess;
  return TheDeviceFault().calls.fetch_sub(1) <= 1 ? cudaErrorIllegalAddress : cudaSuccess;
}

constexpr int kMostDevices = 64;
std::atomic<bool> contexts[kMostDevices] = {};

void MakeContext(int device) {
  if (contexts[device % kMostDevices].exchange(true)) return;
  const char* const path = std::getenv("SPARSEFW_CUDA_ON_HOST_CONTEXTS");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "%d\n", device);
  std::fclose(file);
}

// Its name, and CUDA's words for it.
std::pair<const char*, const char*> Described(cudaError_t error) {
  switch (error) {
#define CUDA_ON_HOST_CASE(name, value, words) \
  case name:                                  \
    return {#name, words};
    CUDA_ON_HOST_ERRORS(CUDA_ON_HOST_CASE)
#undef CUDA_ON_HOST_CASE
  }
  return {"unrecognized error code", "unrecognized error code"};
}

// What can be asked about a device that has no context.
cudaError_t StateOf(int device) {
  if (DeviceCount() <= 0) return cudaErrorNoDevice;
  if (const cudaError_t error = FaultOf(device); error != cudaSuccess) return error;
  return Fault();
}

}  // namespace

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t DeviceState() {
  const cudaError_t error = StateOf(current_device);
  if (error == cudaSuccess) MakeContext(current_device);
  return error;
}

bool HasContext(int device) { return contexts[device % kMostDevices]; }

void SetDeviceFault(int device, int64_t calls) {
  TheDeviceFault().calls = calls;
  TheDeviceFault().device = device;
}

void SetMemoryPoolsSupported(bool supported) { memory_pools_supported = supported; }

bool Emulated() { return true; }

int64_t PropertyQueries() { return property_queries; }

void SetFault(cudaError_t error, int64_t calls) {
  calls_to_fault = calls;
  fault = error;
}

}  // namespace cuda_on_host

using cuda_on_host::DeviceState;
using cuda_on_host::Report;

const char* cudaGetErrorName(cudaError_t error) { return cuda_on_host::Described(error).first; }

const char* cudaGetErrorString(cudaError_t error) { return cuda_on_host::Described(error).second; }

cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_on_host::last_error;
  cuda_on_host::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return cuda_on_host::last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = cuda_on_host::DeviceCount();
  return Report(*count <= 0 ? cudaErrorNoDevice : cuda_on_host::Fault());
}

cudaError_t cudaSetDevice(int device) {
  const int count = cuda_on_host::DeviceCount();
  if (count > 0 && (device < 0 || device >= count)) return Report(cudaErrorInvalidDevice);
  cuda_on_host::current_device = device;
  return Report(DeviceState());  // since CUDA 12 this makes the context
}

cudaError_t cudaGetDevice(int* device) {
  const int current = cuda_on_host::current_device;
  const cudaError_t error = cuda_on_host::StateOf(current);
  if (error != cudaSuccess) return Report(error);
  *device = current;
  return cudaSuccess;
}

// Hopper's limits, but few multiprocessors, so that grids sized by their number
// loop even in small tests.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const cudaError_t error = cuda_on_host::StateOf(device);
  if (error != cudaSuccess) return Report(error);
  if (device < 0 || device >= cuda_on_host::DeviceCount()) return Report(cudaErrorInvalidDevice);
  ++cuda_on_host::property_queries;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s",
                "CUDA emulated on the host (for tests)");
  properties->totalGlobalMem = cuda_on_host::DeviceBytes();
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = 4;
  properties->pciBusID = 0x3b;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const cudaError_t error = cuda_on_host::StateOf(device);
  if (error != cudaSuccess) return Report(error);
  if (device < 0 || device >= cuda_on_host::DeviceCount()) return Report(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(cuda_on_host::kMaxDynamicShared);
      return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      *value = cuda_on_host::memory_pools_supported ? 1 : 0;
      return cudaSuccess;
  }
  return Report(cudaErrorInvalidValue);
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  cuda_on_host::device_flags[cuda_on_host::current_device % 8] = flags;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  *flags = cuda_on_host::device_flags[cuda_on_host::current_device % 8];
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  // As CUDA does where there is no driver.
  *version = cuda_on_host::DeviceCount() > 0 ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
