// Tokens that continue a listing, of tensors and of jobs.
#include <memory>
#include <string>

#include "server/storage/sqlite_stores.h"
#include "server/tensors/store/page_token.h"
#include "sparsefw/reason.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw;  // NOLINT: one function
  const std::string token(reinterpret_cast<const char*>(data), size);
  const auto position = server::DecodePageToken(token, "salt");
  if (position.has_value()) {
    fuzz::Require(server::EncodePageToken(*position, "salt") == token,
                  "a token that is accepted was made here");
  }
  static const std::unique_ptr<server::JobStore> jobs = [] {
    auto store = server::NewMemoryJobStore().value();
    for (const char* name : {"jobs/a", "jobs/b", "jobs/c"}) {
      server::Job job;
      job.name = name;
      fuzz::Require(store->Insert(job, "", "", {}).ok(), "a job is kept");
    }
    return store;
  }();
  const auto page = jobs->List({}, 2, token);
  fuzz::Require(page.ok() || ReasonOf(page.status()) == "PAGE_TOKEN_INVALID",
                "a listing goes on or refuses the token");
  if (page.ok()) fuzz::Require(page->jobs.size() <= 2, "a page has its size");
  return 0;
}
