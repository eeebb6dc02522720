// The status page: one HTML document with its style and its script in it.
#ifndef SPARSEFW_SERVER_STATUS_STATUS_PAGE_H_
#define SPARSEFW_SERVER_STATUS_STATUS_PAGE_H_

#include <functional>
#include <map>
#include <string>

#include "server/metrics/metrics_endpoint.h"

namespace sparsefw::server {

struct StatusPage {
  std::string html;
  // Content-Security-Policy: its own style and script by their hashes, requests to its own server,
  // and nothing else.
  std::string policy;
};

StatusPage MakeStatusPage();

// "/", and "/status.json", which it asks for: `document` is StatusDocument.
std::map<std::string, MetricsEndpoint::Page, std::less<>> StatusPages(
    std::function<std::string()> document);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STATUS_STATUS_PAGE_H_
