// One measurement of a running server as a client sees it; prints JSON. Jobs run --iterations.
//
//   --measure upload    seconds of uploads of --bytes, --runs of them
//   --measure latency   milliseconds of GetServerInfo, --runs calls, while --uploads streams
//                       send --bytes each, again and again
//   --measure overhead  seconds from CreateJob to the mask of a tiny layer, and of the same
//                       solve in this process, in turn, --runs of each
//   --measure queue     seconds for --runs tiny jobs from --clients threads
//   --measure reports   seconds of a job that reports after each of --iterations, watched by
//   --clients
//                       and by nobody, in turn, --runs of each
//   --measure fill      --uploads streams of --bytes at once: seconds
#include <atomic>
#include <cstdio>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "grpcpp/grpcpp.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/client.h"
#include "sparsefw/problem.h"
#include "sparsefw/solver.h"
#include "sparsefw/v1/prune_service.grpc.pb.h"

namespace sparsefw::bench {
namespace {

using client::Client;

constexpr int64_t kTinyRows = 16;
constexpr int64_t kTinyCols = 32;

struct Settings {
  std::string server;
  int64_t bytes;
  int64_t runs;
  int64_t uploads;
  int64_t clients;
  int64_t iterations;
};

std::unique_ptr<Client> Connect(const Settings& settings) {
  return OrDie(Client::Connect(settings.server));
}

// A weight of the given size: rows of 4 KiB.
v1::TensorSpec SpecOf(int64_t bytes) {
  v1::TensorSpec spec;
  spec.set_kind(v1::TENSOR_KIND_WEIGHT);
  spec.set_dtype(v1::DATA_TYPE_F32);
  spec.add_dims(bytes / 4096);
  spec.add_dims(1024);
  return spec;
}

std::vector<std::byte> Content(int64_t bytes) {
  std::vector<std::byte> content(static_cast<size_t>(bytes / 4096 * 4096));
  for (size_t i = 0; i < content.size(); i += 64) content[i] = static_cast<std::byte>(i >> 6);
  return content;
}

// The sink keeps nothing and cannot delete.
void Drop(Client& one, const v1::Tensor& tensor) {
  if (tensor.name() != "tensors/sink") OrDie(one.DeleteTensor(tensor.name()));
}

nlohmann::json Upload(const Settings& settings) {
  const auto one = Connect(settings);
  const std::vector<std::byte> content = Content(settings.bytes);
  std::vector<double> seconds;
  for (int64_t run = 0; run < settings.runs; ++run) {
    const Stopwatch watch;
    const v1::Tensor tensor = OrDie(one->UploadTensor(SpecOf(settings.bytes), content));
    seconds.push_back(watch.seconds());
    Drop(*one, tensor);
  }
  return {{"bytes", settings.bytes}, {"seconds", seconds}};
}

nlohmann::json Latency(const Settings& settings) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> uploads;
  for (int64_t i = 0; i < settings.uploads; ++i) {
    uploads.emplace_back([&] {
      const auto one = Connect(settings);
      const std::vector<std::byte> content = Content(settings.bytes);
      while (!stop) Drop(*one, OrDie(one->UploadTensor(SpecOf(settings.bytes), content)));
    });
  }
  const auto one = Connect(settings);
  std::vector<double> milliseconds;
  for (int64_t run = 0; run < settings.runs; ++run) {
    const Stopwatch watch;
    OrDie(one->GetServerInfo().status());
    milliseconds.push_back(1e3 * watch.seconds());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stop = true;
  for (std::thread& upload : uploads) upload.join();
  return {{"uploads", settings.uploads}, {"milliseconds", milliseconds}};
}

struct TinyLayer {
  const int64_t iterations;
  SyntheticLayer layer = OrDie(MakeSyntheticLayer(kTinyRows, kTinyCols, 1));

  v1::JobSpec Upload(Client& one) const {
    v1::TensorSpec weight, gram;
    weight.set_kind(v1::TENSOR_KIND_WEIGHT);
    gram.set_kind(v1::TENSOR_KIND_GRAM);
    for (v1::TensorSpec* spec : {&weight, &gram}) spec->set_dtype(v1::DATA_TYPE_F32);
    weight.add_dims(kTinyRows);
    weight.add_dims(kTinyCols);
    gram.add_dims(kTinyCols);
    gram.add_dims(kTinyCols);
    v1::JobSpec spec;
    spec.set_weight(OrDie(one.UploadTensor(weight, std::as_bytes(layer.weights.span()))).name());
    spec.set_gram(OrDie(one.UploadTensor(gram, std::as_bytes(layer.gram.span()))).name());
    spec.set_method(v1::METHOD_SPARSEFW);
    spec.mutable_pattern()->mutable_per_row()->set_sparsity(0.6);
    spec.mutable_sparsefw()->set_iterations(iterations);
    return spec;
  }

  void Solve() const {
    Problem problem;
    problem.weights = layer.weights.view();
    problem.gram = layer.gram.view();
    problem.pattern = Pattern::PerRow(0.6);
    SolveOptions options;
    options.iterations = iterations;
    OrDie(sparsefw::Solve(problem, options, *OrDie(FindBackend("cpu")), nullptr, nullptr).status());
  }
};

void RunJob(Client& one, const v1::JobSpec& spec) {
  const v1::Job job = OrDie(one.WaitJob(OrDie(one.CreateJob(spec)).name()));
  if (job.state() != v1::JOB_STATE_SUCCEEDED) Die(job.name() + " did not succeed");
  OrDie(one.ReadTensor(job.result().mask()).status());
}

nlohmann::json Overhead(const Settings& settings) {
  const auto one = Connect(settings);
  const TinyLayer tiny{settings.iterations};
  const v1::JobSpec spec = tiny.Upload(*one);
  std::vector<double> service, in_process;
  for (int64_t run = 0; run < settings.runs; ++run) {
    const Stopwatch job;
    RunJob(*one, spec);
    service.push_back(job.seconds());
    const Stopwatch solve;
    tiny.Solve();
    in_process.push_back(solve.seconds());
  }
  return {{"seconds", service}, {"in_process_seconds", in_process}};
}

nlohmann::json Queue(const Settings& settings) {
  const TinyLayer tiny{settings.iterations};
  const v1::JobSpec spec = tiny.Upload(*Connect(settings));
  std::atomic<int64_t> left{settings.runs};
  std::vector<std::thread> clients;
  const Stopwatch watch;
  for (int64_t i = 0; i < settings.clients; ++i) {
    clients.emplace_back([&] {
      const auto one = Connect(settings);
      while (left.fetch_sub(1) > 0) RunJob(*one, spec);
    });
  }
  for (std::thread& thread : clients) thread.join();
  const double seconds = watch.seconds();
  const Stopwatch solves;
  for (int64_t run = 0; run < settings.runs; ++run) tiny.Solve();
  const auto jobs = OrDie(Connect(settings)->ListJobs());
  return {{"jobs", settings.runs},
          {"jobs_there", jobs.size()},
          {"seconds", seconds},
          {"sequential_solve_seconds", solves.seconds()}};
}

double SecondsOf(const v1::Job& job) {
  const auto nanoseconds = [](const google::protobuf::Timestamp& time) {
    return 1e9 * static_cast<double>(time.seconds()) + time.nanos();
  };
  return 1e-9 * (nanoseconds(job.end_time()) - nanoseconds(job.start_time()));
}

// One stream of WatchJob. Ends the program where it fails.
class Watcher final : public grpc::ClientReadReactor<v1::JobEvent> {
 public:
  // Counts down at the first event, and at the end.
  Watcher(v1::PruneService::Stub& stub, const v1::WatchJobRequest& request, std::latch* seen,
          std::latch* ended)
      : seen_(seen), ended_(ended) {
    stub.async()->WatchJob(&context_, &request, this);
    StartRead(&event_);
    StartCall();
  }
  int64_t events() const { return events_; }  // once it has ended

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (events_++ == 0) seen_->count_down();
    StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    if (!status.ok()) Die("a watcher failed: " + status.error_message());
    if (events_ == 0) seen_->count_down();
    ended_->count_down();
  }

  std::latch* const seen_;
  std::latch* const ended_;
  grpc::ClientContext context_;
  v1::JobEvent event_;
  int64_t events_ = 0;
};

std::vector<std::unique_ptr<Watcher>> Watch(const std::string& server, const std::string& job,
                                            int64_t count, std::latch* seen, std::latch* ended) {
  constexpr int64_t kStreamsOfAConnection = 200;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  v1::WatchJobRequest request;
  request.set_name(job);
  std::unique_ptr<v1::PruneService::Stub> stub;
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (int64_t i = 0; i < count; ++i) {
    if (i % kStreamsOfAConnection == 0) {
      stub = v1::PruneService::NewStub(
          grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments));
    }
    watchers.push_back(std::make_unique<Watcher>(*stub, request, seen, ended));
  }
  return watchers;
}

// The job waits behind another one until all its watchers are there.
nlohmann::json Reports(const Settings& settings) {
  const auto one = Connect(settings);
  v1::JobSpec spec = TinyLayer{settings.iterations}.Upload(*one);
  spec.mutable_sparsefw()->set_report_every(1);
  v1::JobSpec before = spec;
  before.mutable_sparsefw()->set_iterations(1'000'000'000);
  std::vector<double> alone, watched;
  int64_t events = 0;
  for (int64_t run = 0; run < 2 * settings.runs; ++run) {
    const v1::Job first = OrDie(one->CreateJob(before));
    const v1::Job job = OrDie(one->CreateJob(spec));
    const int64_t count = run % 2 == 0 ? 0 : settings.clients;
    std::latch seen(count), done(count);
    const auto watchers = Watch(settings.server, job.name(), count, &seen, &done);
    seen.wait();
    OrDie(one->CancelJob(first.name()).status());
    done.wait();
    for (const auto& watcher : watchers) events += watcher->events();
    const v1::Job ended = OrDie(one->WaitJob(job.name()));
    if (ended.state() != v1::JOB_STATE_SUCCEEDED) Die(job.name() + " did not succeed");
    (count == 0 ? alone : watched).push_back(SecondsOf(ended));
  }
  return {{"watchers", settings.clients},
          {"reports", settings.iterations},
          {"events", events},
          {"seconds", watched},
          {"unwatched_seconds", alone}};
}

nlohmann::json Fill(const Settings& settings) {
  const std::vector<std::byte> content = Content(settings.bytes);
  std::vector<std::thread> uploads;
  const Stopwatch watch;
  for (int64_t i = 0; i < settings.uploads; ++i) {
    uploads.emplace_back([&] {
      const auto one = Connect(settings);
      Drop(*one, OrDie(one->UploadTensor(SpecOf(settings.bytes), content)));
    });
  }
  for (std::thread& upload : uploads) upload.join();
  return {{"uploads", settings.uploads}, {"bytes", settings.bytes}, {"seconds", watch.seconds()}};
}

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const std::string measure = flags.Required("measure");
  const Settings settings = {flags.Required("server"),     flags.Integer("bytes", 256 << 20),
                             flags.Integer("runs", 9),     flags.Integer("uploads", 4),
                             flags.Integer("clients", 16), flags.Integer("iterations", 50)};
  flags.Finish();
  const std::map<std::string, nlohmann::json (*)(const Settings&)> measures = {
      {"upload", Upload}, {"latency", Latency}, {"overhead", Overhead},
      {"queue", Queue},   {"reports", Reports}, {"fill", Fill}};
  const auto found = measures.find(measure);
  if (found == measures.end()) {
    Die("--measure must be upload, latency, overhead, queue, reports or fill; got " + measure);
  }
  std::printf("%s\n", found->second(settings).dump().c_str());
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
