// Records of tensors and uploads as a damaged database may hold them, and a store that starts
// with them.
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "SQLiteCpp/SQLiteCpp.h"
#include "server/storage/connection.h"
#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "sparsefw/crc32c.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/temporary_store.h"

namespace {

using namespace sparsefw;  // NOLINT: one file

constexpr char kId[] = "0123456789abcdef0123456789abcdef";
constexpr char kSums[] = "fedcba9876543210fedcba9876543210";

// Often a small number, sometimes any.
int64_t Number(fuzz::Input& input) {
  const uint8_t kind = input.Byte();
  if (kind < 224) return kind % 32;
  uint64_t number = 0;
  for (int i = 0; i < 4; ++i) number = number << 16U | input.Short();
  return static_cast<int64_t>(number);
}

void InsertRow(SQLite::Database& db, fuzz::Input& input) {
  SQLite::Statement insert(
      db,
      "INSERT INTO tensors (id, tenant, owner, request_id, from_upload, transient, job, kind,"
      " dtype, rows, cols, token_count, activation_dtype, complete, committed, crc32c, sums,"
      " create_ns, use_ns, expire_ns) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  const unsigned flags = input.Byte();
  // Also names that are no id, such as a way out of the folder.
  const std::string id = (flags & 1U) != 0 ? std::string(input.Text(input.Byte() % 40)) : kId;
  insert.bind(1, id);
  insert.bind(2, "default");
  insert.bind(3, "fuzz");
  if ((flags & 2U) != 0) insert.bind(4, std::string(input.Text(4)));
  insert.bind(5, Number(input));
  insert.bind(6, Number(input));
  if ((flags & 4U) != 0) insert.bind(7, "jobs/a");
  for (int column = 8; column <= 12; ++column) insert.bind(column, Number(input));
  if ((flags & 8U) != 0) insert.bind(13, Number(input));
  for (int column = 14; column <= 16; ++column) insert.bind(column, Number(input));
  if ((flags & 16U) != 0) {
    insert.bind(17, (flags & 32U) != 0 ? std::string(input.Text(input.Byte() % 40)) : kSums);
  }
  insert.bind(18, Number(input));
  insert.bind(19, Number(input));
  if ((flags & 64U) != 0) insert.bind(20, Number(input));
  insert.exec();
}

void Use(server::TensorStore& store) {
  const auto page = store.ListTensors(100, "");
  if (!page.ok()) return;
  for (const server::TensorInfo& tensor : page->tensors) {
    if (const auto handle = store.Acquire(tensor.name); handle.ok()) {
      fuzz::Require(std::ssize((*handle)->bytes()) == (*handle)->info().byte_size,
                    "a tensor has its bytes");
    }
  }
  const std::string upload = std::string("uploads/") + kId;
  const std::string text(48, '\0');
  const auto bytes = std::as_bytes(std::span(text));
  static_cast<void>(store.Write(upload, 0, bytes, Crc32c(bytes)).ok());
  static_cast<void>(store.Accumulate(upload, 0, bytes, Crc32c(bytes)).ok());
  static_cast<void>(store.GetUpload(upload).ok());
  static_cast<void>(store.Finish(upload, std::nullopt).ok());
  fuzz::Require(store.usage().used_bytes >= 0, "the budget is no negative number");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::TemporaryFolder folder;
  static const std::unique_ptr<server::Database> database =
      *server::Database::Open(folder.File("sparsefw.db"));
  static const auto catalog = server::NewSqliteTensorCatalog(database.get());
  const std::string spool = folder.File("spool");
  const std::string outside = folder.File("outside.tensor");
  std::filesystem::create_directories(spool);
  std::ofstream(outside) << "of somebody else";

  fuzz::Input input(data, size);
  for (const char* name : {kId, kSums}) {
    std::ofstream(spool + "/" + name + ".tensor") << input.Text(input.Byte() % 80);
  }
  const absl::Status inserted =
      database->Write(server::Durability::kProcessLoss, [&](SQLite::Database& db) -> absl::Status {
        db.exec("DELETE FROM tensors");
        while (!input.empty()) InsertRow(db, input);
        return absl::OkStatus();
      });
  if (!inserted.ok()) return 0;  // two rows of one id
  server::TensorStoreOptions options;
  options.spool_dir = spool;
  options.catalog = catalog.get();
  options.gram_backend = *FindBackend("reference");
  options.gram_threads = 1;
  if (const auto store = server::TensorStore::Open(options); store.ok()) Use(**store);
  fuzz::Require(std::filesystem::exists(outside), "files outside of the folder stay");
  return 0;
}
