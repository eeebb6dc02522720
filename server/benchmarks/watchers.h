// Many streams of WatchJob, read by one thread.
#ifndef SPARSEFW_SERVER_BENCHMARKS_WATCHERS_H_
#define SPARSEFW_SERVER_BENCHMARKS_WATCHERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "sparsefw/v1/prune_service.grpc.pb.h"

namespace sparsefw::bench {

class Watchers {
 public:
  // Returns once all `count` streams have had their first event. Ends the program where one fails.
  Watchers(const std::string& server, const std::string& job, int64_t count);
  ~Watchers();
  // Events of all streams, once the last of them has ended.
  int64_t Join();

 private:
  struct Stream;
  void Read(int64_t streams);

  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<v1::PruneService::Stub>> stubs_;
  std::vector<std::unique_ptr<Stream>> streams_;
  int64_t events_ = 0;
  std::thread thread_;
};

}  // namespace sparsefw::bench

#endif  // SPARSEFW_SERVER_BENCHMARKS_WATCHERS_H_
