// The C++ client as a program that is told what to do: see ../driver.py for the protocol.
#include <cstddef>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/client.h"
#include "sparsefw/client/enum_names.h"
#include "sparsefw/client/error.h"
#include "sparsefw/client/tls.h"
#include "sparsefw/mutex.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

using nlohmann::json;

void Print(const json& line) {
  static Mutex mutex;
  const MutexLock lock(mutex);
  std::cout << line.dump() << std::endl;
}

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

json ErrorOf(const absl::Status& status) {
  json error = {{"code", absl::StatusCodeToString(status.code())},
                {"reason", ReasonOf(status)},
                {"metadata", ReasonMetadataOf(status)},
                {"message", std::string(status.message())}};
  if (const auto delay = RetryDelayOf(status)) error["retry_delay"] = absl::ToDoubleSeconds(*delay);
  return error;
}

json Describe(const v1::Tensor& tensor) {
  return {{"name", tensor.name()},
          {"byte_size", tensor.byte_size()},
          {"tokens", tensor.spec().token_count()}};
}

json Describe(const v1::Job& job) {
  json result = {{"name", job.name()},          {"state", client::ShortName(job.state())},
                 {"revision", job.revision()},  {"attempts", job.attempts()},
                 {"mask", job.result().mask()}, {"kept", job.result().kept_count()}};
  const absl::Status error = StatusFromProto(job.error());
  if (!error.ok()) result["error"] = ErrorOf(error);
  return result;
}

v1::TensorKind KindOf(const json& kind) {
  return kind == "weight" ? v1::TENSOR_KIND_WEIGHT : v1::TENSOR_KIND_GRAM;
}

template <typename Message>
absl::StatusOr<json> NamesOf(const absl::StatusOr<std::vector<Message>>& listed) {
  if (!listed.ok()) return listed.status();
  json names = json::array();
  for (const Message& one : *listed) names.push_back(one.name());
  return json{{"names", names}};
}

template <typename Message>
absl::StatusOr<json> Described(const absl::StatusOr<Message>& message) {
  if (!message.ok()) return message.status();
  return Describe(*message);
}

absl::StatusOr<json> Done(const absl::Status& status) {
  if (!status.ok()) return status;
  return json::object();
}

v1::JobSpec SpecOf(const json& options) {
  v1::JobSpec spec;
  spec.set_weight(options.value("weight", ""));
  spec.set_gram(options.value("gram", ""));
  spec.set_method(options.value("method", "") == "wanda" ? v1::METHOD_WANDA : v1::METHOD_SPARSEFW);
  spec.mutable_pattern()->mutable_per_row()->set_sparsity(options.value("sparsity", 0.5));
  if (options.contains("iterations")) {
    spec.mutable_sparsefw()->set_iterations(options["iterations"].get<int64_t>());
  }
  if (options.contains("report_every")) {
    spec.mutable_sparsefw()->set_report_every(options["report_every"].get<int64_t>());
  }
  if (options.contains("deadline")) {
    const auto milliseconds = static_cast<int64_t>(options["deadline"].get<double>() * 1e3);
    spec.mutable_deadline()->set_seconds(milliseconds / 1000);
    spec.mutable_deadline()->set_nanos(static_cast<int32_t>(milliseconds % 1000 * 1'000'000));
  }
  return spec;
}

class Driver {
 public:
  void Answer(const json& request) {
    const absl::StatusOr<json> result = Run(request);
    json line = {{"id", request["id"]}};
    if (result.ok()) {
      line["ok"] = *result;
    } else {
      line["error"] = ErrorOf(result.status());
    }
    Print(line);
  }

 private:
  absl::StatusOr<json> Run(const json& request) {
    const std::string op = request["op"];
    const std::string client = request["client"];
    if (op == "connect") return Done(Connect(client, request));
    if (op == "close") {
      const MutexLock lock(mutex_);
      clients_.erase(client);
      return json::object();
    }
    const std::shared_ptr<Client> held = Find(client);
    return RunOn(*held, op, request);
  }

  absl::Status Connect(const std::string& name, const json& request) {
    ClientOptions options;
    const auto seconds = [&request](const char* key, absl::Duration otherwise) {
      return request.contains(key) ? absl::Seconds(request[key].get<double>()) : otherwise;
    };
    options.connect_timeout = seconds("connect_timeout", options.connect_timeout);
    options.call_timeout = seconds("call_timeout", options.call_timeout);
    options.watch_silence = seconds("watch_silence", options.watch_silence);
    options.retry.give_up_after = seconds("give_up_after", options.retry.give_up_after);
    options.retry.initial_backoff = absl::Milliseconds(50);
    options.retry.max_backoff = absl::Milliseconds(500);
    options.chunk_bytes = request.value("chunk_bytes", options.chunk_bytes);
    options.token = request.value("token", "");
    if (request.contains("tls_ca")) {
      SPARSEFW_ASSIGN_OR_RETURN(options.credentials,
                                TlsCredentials({request["tls_ca"], request.value("tls_cert", ""),
                                                request.value("tls_key", "")}));
    }
    options.on_retry = [name](const absl::Status& error, absl::Duration wait) {
      json retry = ErrorOf(error);
      retry["wait"] = absl::ToDoubleSeconds(wait);
      Print({{"client", name}, {"retry", retry}});
    };
    SPARSEFW_ASSIGN_OR_RETURN(auto client, Client::Connect(request["server"], std::move(options)));
    const MutexLock lock(mutex_);
    clients_[name] = std::move(client);
    return absl::OkStatus();
  }

  std::shared_ptr<Client> Find(const std::string& name) {
    const MutexLock lock(mutex_);
    return clients_.at(name);
  }

  absl::StatusOr<json> RunOn(Client& client, const std::string& op, const json& request) {
    const std::string name = request.value("name", "");
    const std::string request_id = request.value("request_id", "");
    if (op == "info") return Done(client.GetServerInfo().status());
    if (op == "upload") {
      const int64_t rows = request["shape"][0], cols = request["shape"][1];
      const v1::TensorSpec spec = request["kind"] == "gram" ? GramTensorSpec(DType::kF32, cols)
                                                            : WeightSpec(DType::kF32, rows, cols);
      return Described(client.UploadTensor(spec, ReadFile(request["file"]), {}, {}, request_id));
    }
    if (op == "gram") {
      const v1::GramSpec spec = ActivationSpec(DType::kF32, request["d_in"].get<int64_t>());
      return Described(
          client.UploadGramFromActivations(spec, ReadFile(request["file"]), {}, {}, request_id));
    }
    if (op == "read") {
      SPARSEFW_ASSIGN_OR_RETURN(const TensorData data, client.ReadTensor(name));
      WriteFile(request["file"], data.bytes);
      return Describe(data.tensor);
    }
    if (op == "get_tensor") return Described(client.GetTensor(name));
    if (op == "list_tensors") {
      ListTensorsOptions options;
      if (request.contains("kind")) options.kinds = {KindOf(request["kind"])};
      return NamesOf(client.ListTensors(options));
    }
    if (op == "list_uploads") return NamesOf(client.ListUploads());
    if (op == "delete_upload") return Done(client.DeleteUpload(name));
    if (op == "delete_tensor") return Done(client.DeleteTensor(name));
    return RunJob(client, op, name, request);
  }

  static absl::StatusOr<json> RunJob(Client& client, const std::string& op, const std::string& name,
                                     const json& request) {
    if (op == "create_job") {
      return Described(client.CreateJob(SpecOf(request), request.value("request_id", "")));
    }
    if (op == "get_job") return Described(client.GetJob(name));
    if (op == "cancel_job") return Described(client.CancelJob(name));
    if (op == "delete_job") return Done(client.DeleteJob(name));
    if (op == "watch") {
      const auto observer = [&request](const v1::JobEvent& event) {
        if (event.kind() == v1::JobEvent::KIND_HEARTBEAT) return;
        Print({{"id", request["id"]},
               {"event",
                {{"kind", client::ShortName(event.kind())},
                 {"state", client::ShortName(event.job().state())},
                 {"revision", event.job().revision()}}}});
      };
      return Described(client.WaitJob(name, observer, {}, request.value("after", int64_t{0})));
    }
    if (op == "prune") return Prune(client, request);
    return absl::UnimplementedError(op);
  }

  static absl::StatusOr<json> Prune(Client& client, const json& request) {
    PruneInput input;
    input.spec = SpecOf(request);
    const int64_t rows = request["shape"][0], cols = request["shape"][1];
    input.weight = WeightSpec(DType::kF32, rows, cols);
    input.activations = ActivationSpec(DType::kF32, cols);
    const auto weight = ReadFile(request["weight_file"]);
    const auto activations = ReadFile(request["activations_file"]);
    input.weight_bytes = weight;
    input.activation_bytes = activations;
    SPARSEFW_ASSIGN_OR_RETURN(const PruneOutput output, client.Prune(input));
    WriteFile(request["file"], output.mask);
    return Describe(output.job);
  }

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Client>> clients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace sparsefw::client

int main() {
  sparsefw::client::Driver driver;
  std::vector<std::jthread> threads;
  std::string line;
  while (std::getline(std::cin, line)) {
    threads.emplace_back(
        [&driver, request = nlohmann::json::parse(line)] { driver.Answer(request); });
  }
  std::cout.flush();
  // Calls that are under way are of no interest any more.
  std::quick_exit(0);
}
