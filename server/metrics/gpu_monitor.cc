#include "server/metrics/gpu_monitor.h"

#include <chrono>
#include <utility>

#include "sparsefw/mutex.h"

namespace sparsefw::server {

struct GpuMonitor::State {
  explicit State(GpuMonitorOptions given) : options(std::move(given)) {}

  // Measures until the end. The lock is free while NVML may block.
  void Poll(const GpuSampler& sample);

  const GpuMonitorOptions options;
  mutable Mutex mutex;
  CondVar wake;  // of the thread
  CondVar ended_condition;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::vector<GpuSample> samples ABSL_GUARDED_BY(mutex);
  absl::Time sampled_at ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
};

void GpuMonitor::State::Poll(const GpuSampler& sample) {
  for (;;) {
    {
      MutexLock lock(mutex);
      if (stopping) return;
    }
    std::vector<GpuSample> measured = sample();
    MutexLock lock(mutex);
    samples = std::move(measured);
    sampled_at = options.clock->SteadyNow();
    const absl::Time next = sampled_at + options.period;
    while (!stopping && options.clock->SteadyNow() < next) {
      options.clock->WaitUntil(wake, mutex, next);
    }
  }
}

void GpuMonitor::Run(const std::shared_ptr<State>& state) {
  {
    absl::StatusOr<GpuSampler> sampler = state->options.open();
    if (sampler.ok()) {
      state->Poll(*sampler);
    } else {
      // Under the lock: what it logs to may be gone once the destructor had it.
      MutexLock lock(state->mutex);
      if (!state->stopping && state->options.on_failure) {
        state->options.on_failure(sampler.status());
      }
    }
  }
  MutexLock lock(state->mutex);
  state->ended = true;
  state->ended_condition.NotifyAll();
}

GpuMonitor::GpuMonitor(GpuMonitorOptions options)
    : state_(std::make_shared<State>(std::move(options))),
      thread_([state = state_] { Run(state); }) {}

GpuMonitor::~GpuMonitor() {
  const auto limit =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(state_->options.patience);
  bool ended = false;
  {
    MutexLock lock(state_->mutex);
    state_->stopping = true;
    state_->wake.NotifyAll();
    while (!state_->ended) {
      const auto left = limit - std::chrono::steady_clock::now();
      if (left <= left.zero()) break;
      state_->ended_condition.WaitFor(state_->mutex, left);
    }
    ended = state_->ended;
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::vector<GpuSample> GpuMonitor::Latest() const {
  const absl::Duration oldest = 3 * state_->options.period + absl::Seconds(1);
  const absl::Time now = state_->options.clock->SteadyNow();
  MutexLock lock(state_->mutex);
  const bool fresh = now - state_->sampled_at <= oldest;
  return fresh ? state_->samples : std::vector<GpuSample>();
}

}  // namespace sparsefw::server
