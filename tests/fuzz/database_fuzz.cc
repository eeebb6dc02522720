// The file of the database: any bytes, or a good file with some of its bytes changed. What
// cannot be read is an error; what can is listed.
#include <fstream>
#include <iterator>
#include <string>

#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/temporary_store.h"

namespace {

using namespace sparsefw;  // NOLINT: one file

void Use(server::Database& database) {
  const auto contents = server::NewSqliteTensorCatalog(&database)->Load();
  static_cast<void>(contents.ok());
  const auto jobs = server::NewSqliteJobStore(&database);
  if (!jobs.ok()) return;
  static_cast<void>((*jobs)->Get("jobs/a").ok());
  static_cast<void>((*jobs)->FindRequest("default", "request").ok());
  static_cast<void>((*jobs)->CountByState().ok());
  static_cast<void>((*jobs)->ListExpired(absl::FromUnixSeconds(2'000'000'000), 10).ok());
  static_cast<void>((*jobs)->List({}, 10, "").ok());
  server::Job job;
  job.name = "jobs/new";
  static_cast<void>((*jobs)->Insert(job, "another", "", {}).ok());
  static_cast<void>((*jobs)->Delete("jobs/a").ok());
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

// With one job and one tensor.
std::string GoodFile(const std::string& path) {
  {
    auto database = server::Database::Open(path);
    fuzz::Require(database.ok(), "a new database opens");
    server::TensorRecord tensor;
    tensor.id = "0123456789abcdef";
    tensor.spec = {server::TensorKind::kWeight, DType::kF16, 2, 4, 0};
    tensor.complete = true;
    fuzz::Require(server::NewSqliteTensorCatalog(database->get())->Insert(tensor).ok(),
                  "a tensor is kept");
    const auto jobs = server::NewSqliteJobStore(database->get());
    server::Job job;
    job.name = "jobs/a";
    fuzz::Require((*jobs)->Insert(job, "request", "fingerprint", {}).ok(), "a job is kept");
  }
  return ReadFile(path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::TemporaryFolder folder;
  static const std::string path = folder.File("sparsefw.db");
  static const std::string good = GoodFile(folder.File("good.db"));
  fuzz::Input input(data, size);
  std::string bytes;
  if (input.Byte() % 2 == 0) {
    bytes = std::string(input.Text(size));
  } else {
    bytes = good;
    while (!input.empty()) {
      const size_t at = input.Short() % good.size();
      bytes[at] = static_cast<char>(input.Byte());
    }
  }
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    unlink((path + suffix).c_str());
  }
  std::ofstream(path, std::ios::binary) << bytes;
  const auto database = server::Database::Open(path);
  if (database.ok()) Use(**database);
  return 0;
}
