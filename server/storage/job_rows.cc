#include "server/storage/job_rows.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/strings/str_format.h"
#include "server/identity/sha256.h"
#include "server/identity/tenants.h"
#include "server/storage/job_record.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int kFingerprint = 7;  // after kRowColumns

absl::Status NotOfItsRow(const JobRow& row) {
  return Refuse(absl::StatusCode::kInternal, "STORE_FAILED",
                "the record of %d bytes is not that of the row: the name, tenant and state of both "
                "must be the same",
                row.record.size());
}

// Bytes of all tables and indexes. Pages that nothing uses have room for the next job.
int64_t BytesInUse(Connection& db) {
  const Connection::Use select = db.Prepare(
      "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, "
      "pragma_freelist_count, pragma_page_size");
  select->executeStep();
  return select->getColumn(0).getInt64();
}

}  // namespace

std::string_view BytesOf(const SQLite::Column& column) {
  return {static_cast<const char*>(column.getBlob()), static_cast<size_t>(column.getBytes())};
}

JobRow RowOf(SQLite::Statement& statement) {
  JobRow row;
  row.number = statement.getColumn(0).getInt64();
  row.name = statement.getColumn(1).getString();
  row.tenant = statement.getColumn(2).getString();
  row.state = statement.getColumn(3).getInt();
  row.crc32c = static_cast<uint32_t>(statement.getColumn(4).getInt64());
  row.record = std::string(BytesOf(statement.getColumn(5)));
  if (!statement.isColumnNull(6)) row.progress = std::string(BytesOf(statement.getColumn(6)));
  return row;
}

uint32_t ChecksumOf(std::string_view record) {
  return Crc32c(std::as_bytes(std::span(record.data(), record.size())));
}

absl::StatusOr<Job> JobOf(const JobRow& row) {
  if (const uint32_t crc32c = ChecksumOf(row.record); crc32c != row.crc32c) {
    return Refuse(absl::StatusCode::kInternal, "STORE_FAILED",
                  "the record of %d bytes must have the CRC32C %08x; it has %08x",
                  row.record.size(), row.crc32c, crc32c);
  }
  SPARSEFW_ASSIGN_OR_RETURN(Job job, DecodeJob(row.record));
  if (job.name != row.name || job.owner.tenant != row.tenant ||
      static_cast<int>(job.state) != row.state) {
    return NotOfItsRow(row);
  }
  return job;
}

int64_t LabelHash(const std::string& tenant, const std::string& key, const std::string& value) {
  // Names of tenants have no zero byte, and the length tells where the key ends.
  std::string text = tenant;
  text.push_back('\0');
  text += std::to_string(key.size());
  text.push_back('\0');
  text += key;
  text += value;
  const Sha256Digest digest = Sha256(text);
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof(hash); ++i) hash = hash << 8U | digest.bytes[i];
  return static_cast<int64_t>(hash);
}

void InsertLabels(SQLite::Database& db, int64_t number, const Job& job) {
  if (job.spec.labels.empty()) return;
  SQLite::Statement insert(db, "INSERT OR IGNORE INTO job_labels (label, number) VALUES (?, ?)");
  for (const auto& [key, value] : job.spec.labels) {
    insert.bind(1, LabelHash(job.owner.tenant, key, value));
    insert.bind(2, number);
    insert.exec();
    insert.reset();
  }
}

// Version 1 has no checksums: what can be decoded is taken for good. Its fingerprints are whole
// requests.
void IndexJobs(SQLite::Database& db) {
  SQLite::Statement rows(
      db, absl::StrFormat("SELECT %s, fingerprint FROM jobs ORDER BY number", kRowColumns));
  SQLite::Statement update(db,
                           "UPDATE jobs SET bytes = ?, crc32c = ?, damage = ?, fingerprint = ? "
                           "WHERE number = ?");
  while (rows.executeStep()) {
    JobRow row = RowOf(rows);
    row.crc32c = ChecksumOf(row.record);
    const absl::StatusOr<Job> job = JobOf(row);
    update.bind(1, job.ok() ? KeptBytes(*job) : static_cast<int64_t>(row.record.size()));
    update.bind(2, int64_t{row.crc32c});
    if (job.ok()) {
      update.bind(3);
      InsertLabels(db, row.number, *job);
    } else {
      update.bind(3, std::string(job.status().message()));
    }
    if (rows.isColumnNull(kFingerprint)) {
      update.bind(4);
    } else {
      const Sha256Digest digest = Sha256(BytesOf(rows.getColumn(kFingerprint)));
      update.bind(4, digest.bytes.data(), static_cast<int>(digest.bytes.size()));
    }
    update.bind(5, row.number);
    update.exec();
    update.reset();
  }
  db.exec("INSERT INTO job_usage SELECT tenant, count(*), sum(bytes) FROM jobs GROUP BY tenant");
}

absl::Status CheckRoom(Connection& db, bool durable, const JobRoom& room, const std::string& tenant,
                       int64_t bytes) {
  const Connection::Use used = db.Prepare(
      "SELECT ifnull(sum(bytes), 0), ifnull(sum(CASE WHEN tenant = ? THEN bytes END), 0) "
      "FROM job_usage",
      tenant);
  used->executeStep();
  const int64_t all = used->getColumn(0).getInt64();
  const int64_t disk = durable ? std::max(all, BytesInUse(db)) : all;
  const int64_t of_tenant = used->getColumn(1).getInt64();
  if (room.tenant_bytes.has_value() && bytes > *room.tenant_bytes - of_tenant) {
    return QuotaExceeded(
        "QUOTA_JOB_BYTES", "max-job-bytes", *room.tenant_bytes, of_tenant, /*helps=*/false,
        absl::StrFormat(
            "kept jobs of tenant %s must count for at most max-job-bytes of %d bytes; they count "
            "for %d and this one for %d: delete jobs that have ended, or wait until they expire",
            tenant, *room.tenant_bytes, of_tenant, bytes));
  }
  if (bytes > room.all_bytes - all) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "JOBS_FULL",
        "kept jobs must count for at most %d bytes; they count for %d and this one for %d: "
        "delete jobs that have ended, or wait until they expire",
        room.all_bytes, all, bytes);
  }
  if (bytes > room.disk_bytes - disk) {
    return RefuseForNow(
        absl::StatusCode::kResourceExhausted, "DISK_BUDGET",
        "the job and its end need %d bytes of the disk budget; the database and what is "
        "promised to jobs take %d, and beside the tensors there is room for %d",
        bytes, disk, room.disk_bytes);
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::server
