// The catalog of tensors in a database.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "server/storage/connection.h"
#include "server/storage/sqlite_stores.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr char kColumns[] =
    "id, tenant, owner, request_id, from_upload, transient, job, kind, dtype, rows, cols,"
    " token_count, activation_dtype, complete, committed, crc32c, sums, create_ns, use_ns,"
    " expire_ns, request_fingerprint";

// Null where it is empty.
std::optional<std::string_view> OrNull(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<std::string_view>(text);
}

std::string TextOf(const SQLite::Column& column) {
  return column.isNull() ? std::string() : column.getString();
}

absl::Status Damaged(const std::string& id) {
  return Refuse(absl::StatusCode::kInternal, "STORE_FAILED",
                "the record of tensor %s in the job store makes no sense", absl::CHexEscape(id));
}

// The dtype of an accumulation's result is that of the tensor, its d_in the columns.
int64_t InsertRecord(Connection& db, const TensorRecord& record) {
  std::optional<int> activations;
  if (record.gram.has_value()) activations = static_cast<int>(record.gram->activation_dtype);
  std::optional<int64_t> expire;
  if (record.expire_time != absl::InfiniteFuture()) expire = absl::ToUnixNanos(record.expire_time);
  std::optional<Blob> fingerprint;
  if (!record.fingerprint.empty()) fingerprint = Blob{record.fingerprint};
  db.Prepare(std::string("INSERT OR REPLACE INTO tensors (") + kColumns +
                 ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
             record.id, record.owner.tenant, record.owner.name, OrNull(record.request_id),
             record.from_upload, record.transient, OrNull(record.job),
             static_cast<int>(record.spec.kind), static_cast<int>(record.spec.dtype),
             record.spec.rows, record.spec.cols, record.spec.token_count, activations,
             record.complete, record.progress.committed, int64_t{record.progress.crc32c},
             OrNull(record.progress.sums), absl::ToUnixNanos(record.create_time),
             absl::ToUnixNanos(record.use_time), expire, fingerprint)
      ->exec();
  return db.getLastInsertRowid();
}

bool IsKind(int kind) { return kind >= 0 && kind <= static_cast<int>(TensorKind::kPrunedWeight); }
bool IsDType(int dtype) { return dtype >= 0 && dtype <= static_cast<int>(DType::kBool); }

bool MakesSense(const TensorRecord& record) {
  if (!ValidateSpec(record.spec).ok() || record.progress.committed < 0) return false;
  if (!record.gram.has_value()) return true;
  return record.spec.kind == TensorKind::kGram && ValidateSpec(*record.gram).ok();
}

// Columns in the order of kColumns, then the number.
absl::StatusOr<TensorRecord> RecordOf(SQLite::Statement& row) {
  TensorRecord record;
  record.id = row.getColumn(0).getString();
  record.owner = {row.getColumn(1).getString(), row.getColumn(2).getString()};
  record.request_id = TextOf(row.getColumn(3));
  record.from_upload = row.getColumn(4).getInt() != 0;
  record.transient = row.getColumn(5).getInt() != 0;
  record.job = TextOf(row.getColumn(6));
  if (!IsKind(row.getColumn(7).getInt()) || !IsDType(row.getColumn(8).getInt())) {
    return Damaged(record.id);
  }
  record.spec.kind = static_cast<TensorKind>(row.getColumn(7).getInt());
  record.spec.dtype = static_cast<DType>(row.getColumn(8).getInt());
  record.spec.rows = row.getColumn(9).getInt64();
  record.spec.cols = row.getColumn(10).getInt64();
  record.spec.token_count = row.getColumn(11).getInt64();
  if (const SQLite::Column dtype = row.getColumn(12); !dtype.isNull()) {
    if (!IsDType(dtype.getInt())) return Damaged(record.id);
    record.gram = GramSpec{record.spec.cols, static_cast<DType>(dtype.getInt()), record.spec.dtype};
  }
  record.complete = row.getColumn(13).getInt() != 0;
  record.progress.committed = row.getColumn(14).getInt64();
  record.progress.crc32c = static_cast<uint32_t>(row.getColumn(15).getInt64());
  record.progress.sums = TextOf(row.getColumn(16));
  record.create_time = absl::FromUnixNanos(row.getColumn(17).getInt64());
  record.use_time = absl::FromUnixNanos(row.getColumn(18).getInt64());
  if (const SQLite::Column expire = row.getColumn(19); !expire.isNull()) {
    record.expire_time = absl::FromUnixNanos(expire.getInt64());
  }
  if (const SQLite::Column fingerprint = row.getColumn(20); !fingerprint.isNull()) {
    record.fingerprint = fingerprint.getString();
  }
  record.number = row.getColumn(21).getInt64();
  if (!MakesSense(record)) return Damaged(record.id);
  return record;
}

class SqliteTensorCatalog final : public TensorCatalog {
 public:
  explicit SqliteTensorCatalog(Database* database) : database_(*database) {}

  bool durable() const override { return true; }

  absl::StatusOr<Contents> Load() override {
    Contents contents;
    SPARSEFW_RETURN_IF_ERROR(database_.Read([&contents](Connection& db) -> absl::Status {
      const Connection::Use rows =
          db.Prepare(std::string("SELECT ") + kColumns + ", number FROM tensors ORDER BY number");
      while (rows->executeStep()) {
        SPARSEFW_ASSIGN_OR_RETURN(TensorRecord record, RecordOf(*rows));
        contents.records.push_back(std::move(record));
      }
      contents.salt =
          db.execAndGet("SELECT value FROM settings WHERE name = 'tensor_page_salt'").getString();
      contents.store =
          db.execAndGet("SELECT value FROM settings WHERE name = 'store_id'").getString();
      return absl::OkStatus();
    }));
    return contents;
  }

  absl::StatusOr<int64_t> Insert(const TensorRecord& record) override {
    int64_t number = 0;
    SPARSEFW_RETURN_IF_ERROR(
        database_.Write(Durability::kPowerLoss, [&](Connection& db) -> absl::Status {
          number = InsertRecord(db, record);
          return absl::OkStatus();
        }));
    return number;
  }

  absl::Status Commit(std::string_view id, const UploadProgress& progress) override {
    return database_.Write(Durability::kPowerLoss, [&](Connection& db) -> absl::Status {
      db.Prepare(
            "UPDATE tensors SET committed = ?, crc32c = ?, sums = ?"
            " WHERE id = ? AND complete = 0",
            progress.committed, int64_t{progress.crc32c}, OrNull(progress.sums), id)
          ->exec();
      return absl::OkStatus();
    });
  }

  absl::Status Delete(std::span<const std::string> ids) override {
    return database_.Write(Durability::kPowerLoss, [&](Connection& db) -> absl::Status {
      for (const std::string& id : ids) {
        db.Prepare("DELETE FROM tensors WHERE id = ?", id)->exec();
      }
      return absl::OkStatus();
    });
  }

  absl::Status SetUseTimes(std::span<const Use> uses) override {
    return database_.Write(Durability::kProcessLoss, [&](Connection& db) -> absl::Status {
      for (const Use& use : uses) {
        db.Prepare("UPDATE tensors SET use_ns = ? WHERE id = ?", absl::ToUnixNanos(use.time),
                   use.id)
            ->exec();
      }
      return absl::OkStatus();
    });
  }

 private:
  Database& database_;
};

}  // namespace

std::unique_ptr<TensorCatalog> NewSqliteTensorCatalog(Database* database) {
  return std::make_unique<SqliteTensorCatalog>(database);
}

}  // namespace sparsefw::server
