#include "server/storage/database.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/failpoint/failpoint.h"
#include "server/storage/connection.h"
#include "server/storage/migrations.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"
#include "sqlite3.h"

namespace sparsefw::server {
namespace {

// "SPFW": tells our files from other databases.
constexpr int kApplicationId = 0x53504657;
// Nobody else writes; a backup tool may hold a lock for a moment.
constexpr int kBusyTimeoutMs = 10'000;
constexpr size_t kMostPerCommit = 512;
constexpr int64_t kPagesWorthGivingBack = 1024;
constexpr uint64_t kMostOfOneWrite = 64 << 10;

int64_t SizeOf(const std::string& path) {
  struct stat facts = {};
  return stat(path.c_str(), &facts) == 0 ? facts.st_size : 0;
}

// SQLite calls it an error of the disk, and does not keep EFBIG.
bool AtFileSizeLimit(const std::string& path) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  const int64_t size = std::max(SizeOf(path), SizeOf(path + "-wal"));
  return static_cast<uint64_t>(size) + kMostOfOneWrite > limit.rlim_cur;
}

// `path`: of the database; empty: not known.
absl::Status StoreError(int code, const std::string& path, std::string_view message) {
  if ((code & 0xff) == SQLITE_IOERR && !path.empty() && AtFileSizeLimit(path)) {
    return Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                  "the job store has the size that files of this process may have: %s", message);
  }
  switch (code & 0xff) {
    case SQLITE_FULL:
      return Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                    "the disk of the job store is full: %s", message);
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return Refuse(absl::StatusCode::kPermissionDenied, "STORE_FAILED",
                    "the job store cannot be written: %s", message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Refuse(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                    "the file of the job store is damaged: %s", message);
    default:
      return Refuse(absl::StatusCode::kInternal, "STORE_FAILED", "the job store fails: %s",
                    message);
  }
}

// Exceptions end here. `db`: the connection that is used, where it is known.
template <typename Function>
absl::Status Guarded(SQLite::Database* db, const Function& function) {
  try {
    return function();
  } catch (const SQLite::Exception& error) {
    return StoreError(error.getErrorCode(), db == nullptr ? "" : db->getFilename(), error.what());
  } catch (const std::exception& error) {
    return Refuse(absl::StatusCode::kInternal, "STORE_FAILED", "the job store fails: %s",
                  error.what());
  }
}

int64_t Pragma(SQLite::Database& db, const char* name) {
  return db.execAndGet(absl::StrFormat("PRAGMA %s", name)).getInt64();
}

absl::Status NotOurs(const std::string& path) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_VERSION",
                "%s: the store must be a database of sparsefw-server; it is another one", path);
}

// Checks the file before anything is written to it.
absl::Status CheckOurs(SQLite::Database& db, const std::string& path) {
  int64_t version = 0;
  int64_t application = 0;
  bool empty = false;
  try {
    version = Pragma(db, "user_version");
    application = Pragma(db, "application_id");
    empty = db.execAndGet("SELECT count(*) FROM sqlite_schema").getInt() == 0;
  } catch (const SQLite::Exception& error) {
    if ((error.getErrorCode() & 0xff) == SQLITE_NOTADB) return NotOurs(path);
    throw;
  }
  if (application != kApplicationId && !(empty && application == 0)) return NotOurs(path);
  if (version > Database::CurrentVersion()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_VERSION",
                  "%s: the schema version must be at most %d; got %d, made by a newer server", path,
                  Database::CurrentVersion(), version);
  }
  return absl::OkStatus();
}

void Migrate(SQLite::Database& db) {
  const int64_t version = Pragma(db, "user_version");
  for (int64_t next = version; next < Database::CurrentVersion(); ++next) {
    SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
    const Migration& migration = Migrations()[static_cast<size_t>(next)];
    db.exec(migration.sql);
    if (migration.fill != nullptr) migration.fill(db);
    db.exec(absl::StrFormat("PRAGMA application_id = %d", kApplicationId));
    db.exec(absl::StrFormat("PRAGMA user_version = %d", next + 1));
    transaction.commit();
  }
}

// SQLite would make it readable for everybody that the umask allows.
absl::Status MakePrivate(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return Refuse(absl::StatusCode::kPermissionDenied, "STORE_FAILED",
                  "%s: the store must be a file that can be written: %s", path,
                  std::system_category().message(errno));
  }
  close(fd);
  return absl::OkStatus();
}

// SQLite would refuse a link in any part of the path. The folder may be one, as systemd makes it
// for a dynamic user.
absl::StatusOr<std::string> WithoutLinks(const std::string& path) {
  const std::filesystem::path file(path);
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(
      file.has_parent_path() ? file.parent_path() : std::filesystem::path("."), error);
  if (error) {
    return Refuse(absl::StatusCode::kInternal, "STORE_FAILED",
                  "%s: the folder of the store must be one that can be found: %s", path,
                  error.message());
  }
  return (folder / file.filename()).string();
}

// `vacuum`: what becomes of pages that nothing uses, in a file that is empty.
absl::Status SetUp(SQLite::Database& writer, const std::string& path, const char* vacuum) {
  SPARSEFW_RETURN_IF_ERROR(CheckOurs(writer, path));
  // It writes even what stands there already, and a start must not need room on a full disk.
  if (Pragma(writer, "user_version") == 0) writer.exec(vacuum);
  writer.exec("PRAGMA journal_mode = WAL");
  writer.exec("PRAGMA synchronous = FULL");
  Migrate(writer);
  return absl::OkStatus();
}

}  // namespace

struct Database::Pending {
  Durability durability = Durability::kPowerLoss;
  Work work;
  absl::Status result = absl::OkStatus();
  bool queued = false;
  bool done = false;
};

// A connection for one caller at a time.
struct Database::Access {
  // What SQLite keeps for a rollback stays in memory: a container may have no folder that can be
  // written but the state's. Throws SQLite::Exception.
  Access(const std::string& path, int flags) : db(path, flags, kBusyTimeoutMs) {
    db.exec("PRAGMA temp_store = MEMORY");
  }

  Mutex mutex;
  Connection db ABSL_GUARDED_BY(mutex);
};

int Database::CurrentVersion() { return static_cast<int>(Migrations().size()); }

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& given) {
  SPARSEFW_RETURN_IF_ERROR(MakePrivate(given));
  SPARSEFW_ASSIGN_OR_RETURN(const std::string path, WithoutLinks(given));
  const int flags = SQLite::OPEN_READWRITE | SQLite::OPEN_NOFOLLOW;
  std::unique_ptr<Database> database(new Database(path));
  const absl::Status opened = Guarded(nullptr, [&]() -> absl::Status {
    database->writer_ = std::make_shared<Access>(path, flags);
    MutexLock lock(database->writer_->mutex);
    SPARSEFW_RETURN_IF_ERROR(
        SetUp(database->writer_->db, given, "PRAGMA auto_vacuum = INCREMENTAL"));
    for (auto* reader : {&database->reader_, &database->long_reader_}) {
      *reader = std::make_shared<Access>(path, flags);
      MutexLock reading((*reader)->mutex);
      (*reader)->db.exec("PRAGMA query_only = ON");
    }
    return absl::OkStatus();
  });
  if (!opened.ok()) return opened;
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> Database::InMemory() {
  std::unique_ptr<Database> database(new Database(""));
  const absl::Status opened = Guarded(nullptr, [&]() -> absl::Status {
    const auto only =
        std::make_shared<Access>(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    database->writer_ = database->reader_ = database->long_reader_ = only;
    MutexLock lock(only->mutex);
    return SetUp(only->db, "memory", "PRAGMA auto_vacuum = FULL");
  });
  if (!opened.ok()) return opened;
  return database;
}

Database::Database(std::string path) : path_(std::move(path)) {}

Database::~Database() = default;

absl::Status Database::Write(Durability durability, Work work) {
  Pending mine{durability, work};
  while (true) {
    std::deque<Pending*> batch;
    {
      MutexLock lock(mutex_);
      if (!mine.queued) pending_.push_back(&mine);
      mine.queued = true;
      while (!mine.done && leading_) changed_.Wait(mutex_);
      if (mine.done) return std::move(mine.result);
      leading_ = true;
      while (!pending_.empty() && batch.size() < kMostPerCommit) {
        batch.push_back(pending_.front());
        pending_.pop_front();
      }
    }
    RunBatch(batch);
    // Under the lock: a writer that sees `done` leaves with its Pending.
    MutexLock lock(mutex_);
    leading_ = false;
    for (Pending* pending : batch) pending->done = true;
    changed_.NotifyAll();
  }
}

// When the commit fails all writes of the batch have failed.
void Database::RunBatch(std::deque<Pending*>& batch) {
  bool power_loss = false;
  for (const Pending* pending : batch) power_loss |= pending->durability == Durability::kPowerLoss;
  MutexLock lock(writer_->mutex);
  Connection& db = writer_->db;
  const absl::Status committed = Guarded(&db, [&]() -> absl::Status {
    db.exec(power_loss ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
    for (Pending* pending : batch) {
      db.exec("SAVEPOINT work");
      pending->result = Guarded(&db, [&] { return pending->work(db); });
      // A full disk ends the whole transaction.
      if (sqlite3_get_autocommit(db.getHandle()) != 0) return pending->result;
      if (!pending->result.ok()) db.exec("ROLLBACK TO work");
      db.exec("RELEASE work");
    }
    Failpoint("store.commit");
    transaction.commit();
    return absl::OkStatus();
  });
  Failpoint("store.committed");
  if (committed.ok()) return;
  for (Pending* pending : batch) {
    if (pending->result.ok()) pending->result = committed;
  }
}

int64_t Database::FileBytes() const { return SizeOf(path_); }

absl::Status Database::GiveBackPages() {
  return Write(Durability::kProcessLoss, [](Connection& db) {
    if (Pragma(db, "freelist_count") < kPagesWorthGivingBack) return absl::OkStatus();
    db.exec("PRAGMA incremental_vacuum(1024)");
    return absl::OkStatus();
  });
}

absl::Status Database::ReadWith(Access& access, Work work) {
  MutexLock lock(access.mutex);
  Connection& db = access.db;
  return Guarded(&db, [&]() -> absl::Status {
    SQLite::Transaction transaction(db, SQLite::TransactionBehavior::DEFERRED);
    absl::Status result = work(db);
    transaction.commit();
    return result;
  });
}

absl::Status Database::Read(Work work) const { return ReadWith(*reader_, work); }

absl::Status Database::ReadMuch(Work work) const { return ReadWith(*long_reader_, work); }

}  // namespace sparsefw::server
