#include "core/benchmarks/programs/smoke/smoke.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/str_format.h"
#include "core/src/joint/joint_rows.h"

namespace sparsefw::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWarmUp = 2;  // launches that are not timed, where there are more

absl::Status TimedLaunch(const Smoke::Launch& launch, cudaEvent_t begin, cudaEvent_t end,
                         float* milliseconds) {
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin, nullptr));
  if (absl::Status launched = launch(nullptr); !launched.ok()) return launched;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventRecord(end, nullptr));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(milliseconds, begin, end));
  return absl::OkStatus();
}

cuda::Event TimingEvent() {
  cudaEvent_t event = nullptr;
  OrDie(cuda::ToStatus(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreate"));
  return cuda::Event(event);
}

}  // namespace

cuda::DeviceLayer<float> OnDevice(const SyntheticLayer& made, cudaStream_t stream) {
  const auto weights = OrDie(cuda::GivenMatrix::Upload(made.weights.view(), stream, nullptr));
  const auto gram = OrDie(cuda::GivenMatrix::Upload(made.gram.view(), stream, nullptr));
  const Scale scale =
      NearOne({Scale::ExponentFor(weights.max_abs()), Scale::ExponentFor(gram.max_abs())});
  return OrDie(cuda::LoadLayer<float>(weights.view(), gram.view(), scale, stream));
}

void Smoke::Begin(const std::string& name) {
  std::cout << Json{{"begin", name}}.dump() << std::endl;
}

void Smoke::Report(const std::string& name, bool ok, const std::string& detail, Json facts) {
  failed_ = failed_ || !ok;
  std::cout
      << Json{{"item", name}, {"ok", ok}, {"detail", detail}, {"facts", std::move(facts)}}.dump()
      << std::endl;
}

double Smoke::Milliseconds(const std::function<void()>& reset, const Launch& launch) {
  const cuda::Event begin = TimingEvent();
  const cuda::Event end = TimingEvent();
  std::vector<float> measured;
  const int warm_up = launches_ > kWarmUp ? kWarmUp : 0;
  for (int i = 0; i < launches_; ++i) {
    if (reset) reset();
    float milliseconds = 0;
    OrDie(TimedLaunch(launch, begin.get(), end.get(), &milliseconds));
    if (i >= warm_up) measured.push_back(milliseconds);
  }
  std::sort(measured.begin(), measured.end());
  return static_cast<double>(measured[measured.size() / 2]);
}

void Smoke::Kernel(const std::string& name, const std::function<void()>& reset,
                   const Launch& launch) {
  Begin(name);
  const double ms = Milliseconds(reset, launch);
  Report(name, true, absl::StrFormat("%.4f ms", ms), {{"ms", ms}});
}

}  // namespace sparsefw::bench
