// The status page: one HTML document with its style and its script in it, and its content as JSON.
#ifndef SPARSEFW_SERVER_STATUS_STATUS_PAGE_H_
#define SPARSEFW_SERVER_STATUS_STATUS_PAGE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/metrics/gauges.h"
#include "server/metrics/metrics_endpoint.h"
#include "server/status/live_jobs.h"
#include "server/status/refusals.h"

namespace sparsefw::server {

// "/", and "/status.json", which it asks for: `document` is StatusDocument. The policy of "/"
// allows its own style and script by their hashes, requests to its own server, and nothing else.
std::map<std::string, MetricsEndpoint::Page, std::less<>> StatusPages(
    std::function<std::string()> document);

struct StatusFacts {
  std::string version = {};
  std::string default_device = {};
  int workers = 1;
  absl::Time start_time = {};
  std::string not_ready = {};  // why; empty: it accepts work
  // True: anybody who reaches the page may see names and labels of jobs; there is no login.
  bool show_names = false;
};

// Bytes, seconds since 1970, fractions in [0, 1].
std::string StatusDocument(const StatusFacts& facts, const Gauges& gauges,
                           const LiveJobs::View& jobs, const std::vector<Refusal>& refusals,
                           absl::Time now);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STATUS_STATUS_PAGE_H_
