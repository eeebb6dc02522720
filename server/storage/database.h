// The SQLite database of one server: transactions, durability, migrations.
#ifndef SPARSEFW_SERVER_STORAGE_DATABASE_H_
#define SPARSEFW_SERVER_STORAGE_DATABASE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

class Connection;

// How safe a write is when Database::Write returns. A killed process loses neither.
enum class Durability {
  kPowerLoss,    // synced to the disk
  kProcessLoss,  // in the files of the database; a later kPowerLoss write syncs it too
};

// Thread-safe. In a file: with a write-ahead log; one connection writes, two others read.
// In memory: one connection does it all, and every call waits for every other.
//
// Work is a function that gets the connection and uses SQLiteCpp: it may throw
// SQLite::Exception, which becomes the error of the call. It must not start
// transactions of its own and must not call this database.
//
// Errors of all calls, besides those of the work:
//   ResourceExhausted  STORE_FULL: the disk is full
//   DataLoss           STORE_CORRUPT: pages of the file are damaged
//   Internal           STORE_FAILED: any other error of SQLite
// None corrupts the database: what was committed stays.
class Database {
 public:
  using Work = absl::FunctionRef<absl::Status(Connection&)>;

  // Makes the file where it is not there (mode 0600), and brings an older schema
  // to the current version, one transaction a version.
  // Errors: FailedPrecondition  STORE_VERSION: made by a newer server; it is not a
  //                             database of this program
  //         Internal, ResourceExhausted, PermissionDenied  STORE_FAILED, STORE_FULL
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  // Empty; ends with this object.
  static absl::StatusOr<std::unique_ptr<Database>> InMemory();
  ~Database();

  // Runs `work` and commits it, or nothing of it. Writes of several threads that
  // wait at the same time share one commit: each has a savepoint of its own, so an
  // error of one does not touch the others.
  absl::Status Write(Durability durability, Work work);
  // A consistent view: sees every write that has returned.
  absl::Status Read(Work work) const;
  // The same, for what takes long where a client asks for much: waits for others of its kind. In a
  // file no other reader waits for it.
  absl::Status ReadMuch(Work work) const;

  // Bytes of the database on the disk, without the log of writes; 0 in memory.
  int64_t FileBytes() const;
  // Gives the disk back a part of the pages that nothing uses, where there are many. In memory each
  // commit frees them.
  absl::Status GiveBackPages();

  // The schema version of this program.
  static int CurrentVersion();

 private:
  struct Pending;
  struct Access;
  explicit Database(std::string path);

  static absl::Status ReadWith(Access& access, Work work);
  void RunBatch(std::deque<Pending*>& batch);

  const std::string path_;          // empty: in memory
  std::shared_ptr<Access> writer_;  // of the thread that leads a batch; in memory all are one
  std::shared_ptr<Access> reader_;
  std::shared_ptr<Access> long_reader_;

  Mutex mutex_;
  CondVar changed_;
  bool leading_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Pending*> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_DATABASE_H_
