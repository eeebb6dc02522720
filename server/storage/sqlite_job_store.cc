// The store of jobs in a database.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "server/storage/connection.h"
#include "server/storage/job_record.h"
#include "server/storage/job_rows.h"
#include "server/storage/sqlite_stores.h"
#include "server/tensors/store/page_token.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int kRowsOfCheck = 256;

// Rounded up, so that no job expires early.
std::optional<int64_t> ExpiryOf(const Job& job) {
  if (!IsTerminal(job.state)) return std::nullopt;
  return absl::ToUnixNanos(job.expire_time + absl::Nanoseconds(3) / 4);
}

class SqliteJobStore final : public JobStore {
 public:
  // `own`: the database, where it goes with the store.
  SqliteJobStore(Database* database, std::unique_ptr<Database> own, std::string token_salt,
                 OnStoreIncident on_damage)
      : own_(std::move(own)),
        database_(*database),
        token_salt_(std::move(token_salt)),
        on_damage_(std::move(on_damage)) {}

  // Sets apart what cannot be read, and tells of everything that is set apart.
  absl::Status CheckRecords() const;

  bool durable() const override { return own_ == nullptr; }
  absl::Status Insert(const Job& job, std::string_view request_id, std::string_view fingerprint,
                      const JobRoom& room) override;
  absl::Status Update(const Job& job) override;
  absl::Status UpdateProgress(std::string_view name, const JobProgress& progress) override;
  absl::StatusOr<Job> Get(std::string_view name) const override;
  absl::StatusOr<bool> Has(std::string_view name, std::string_view tenant) const override;
  absl::StatusOr<std::optional<RequestRecord>> FindRequest(
      std::string_view tenant, std::string_view request_id) const override;
  absl::StatusOr<Page> List(const JobFilter& filter, int page_size,
                            std::string_view page_token) const override;
  absl::StatusOr<std::vector<Job>> ListExpired(absl::Time now, int limit) const override;
  absl::Status Delete(std::string_view name) override;
  absl::StatusOr<std::map<JobState, int64_t>> CountByState() const override;
  absl::StatusOr<JobStoreUsage> Usage() const override;

 private:
  // The job with its progress. Errors: DataLoss (JOB_DAMAGED), and the job is set apart.
  absl::StatusOr<Job> Decode(const JobRow& row) const;
  // Sets a damaged job apart, or drops its damaged progress. Does nothing where the row was written
  // anew, or dropped, since it was read.
  void Drop(std::string_view kind, const JobRow& row, const absl::Status& cause) const;

  const std::unique_ptr<Database> own_;
  Database& database_;
  const std::string token_salt_;  // of this database: another one's numbers are others
  const OnStoreIncident on_damage_;
};

absl::Status SqliteJobStore::Insert(const Job& job, std::string_view request_id,
                                    std::string_view fingerprint, const JobRoom& room) {
  const std::string record = EncodeJob(job);
  const int64_t bytes = KeptBytes(job);
  return database_.Write(Durability::kPowerLoss, [&](Connection& db) -> absl::Status {
    const Connection::Use taken = db.Prepare("SELECT name FROM jobs WHERE name = ?", job.name);
    if (taken->executeStep()) {
      return absl::AlreadyExistsError(absl::StrFormat("%s exists already", job.name));
    }
    if (!request_id.empty()) {
      const Connection::Use used =
          db.Prepare("SELECT name FROM jobs WHERE tenant = ? AND request_id = ?", job.owner.tenant,
                     request_id);
      if (used->executeStep()) {
        return absl::AlreadyExistsError(absl::StrFormat(
            "request_id \"%s\" belongs to %s", request_id, used->getColumn(0).getString()));
      }
    }
    SPARSEFW_RETURN_IF_ERROR(CheckRoom(db, durable(), room, job.owner.tenant, bytes));
    const bool named = !request_id.empty();
    db.Prepare(
          "INSERT INTO jobs (name, tenant, state, expire_ns, request_id, fingerprint, record, "
          "crc32c, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
          job.name, job.owner.tenant, static_cast<int>(job.state), ExpiryOf(job),
          named ? std::optional(request_id) : std::nullopt,
          named ? std::optional(Blob{fingerprint}) : std::nullopt, Blob{record},
          int64_t{ChecksumOf(record)}, bytes)
        ->exec();
    InsertLabels(db, db.getLastInsertRowid(), job);
    return absl::OkStatus();
  });
}

absl::Status SqliteJobStore::Update(const Job& job) {
  const std::string record = EncodeJob(job);
  return database_.Write(Durability::kPowerLoss, [&](Connection& db) -> absl::Status {
    // All indexes leave out damaged jobs: whoever sets `damage` has every one of them written.
    for (const char* change :
         {"WHERE name = ? AND damage IS NULL", ", damage = NULL WHERE name = ?"}) {
      const Connection::Use update =
          db.Prepare(absl::StrFormat("UPDATE jobs SET state = ?, expire_ns = ?, record = ?, "
                                     "crc32c = ?, bytes = ?, progress = NULL %s",
                                     change),
                     static_cast<int>(job.state), ExpiryOf(job), Blob{record},
                     int64_t{ChecksumOf(record)}, KeptBytes(job), job.name);
      if (update->exec() > 0) return absl::OkStatus();
    }
    return JobNotFound(job.name);
  });
}

absl::Status SqliteJobStore::UpdateProgress(std::string_view name, const JobProgress& progress) {
  const std::string record = EncodeProgress(progress);
  return database_.Write(Durability::kProcessLoss, [&](Connection& db) -> absl::Status {
    const Connection::Use update =
        db.Prepare("UPDATE jobs SET progress = ? WHERE name = ?", Blob{record}, name);
    return update->exec() > 0 ? absl::OkStatus() : JobNotFound(name);
  });
}

absl::StatusOr<Job> SqliteJobStore::Get(std::string_view name) const {
  std::optional<JobRow> row;
  SPARSEFW_RETURN_IF_ERROR(ReadRows(
      database_, [&](SQLite::Statement& found) { row = RowOf(found); },
      absl::StrFormat("SELECT %s FROM jobs WHERE name = ?", kRowColumns), name));
  if (!row) return JobNotFound(name);
  return Decode(*row);
}

absl::StatusOr<Job> SqliteJobStore::Decode(const JobRow& row) const {
  absl::StatusOr<Job> job = JobOf(row);
  if (!job.ok()) {
    Drop(StoreIncident::kDamagedJob, row, job.status());
    return Refuse(absl::StatusCode::kDataLoss, kJobDamaged,
                  "the record of %s is damaged (%s); it is kept until the job is deleted", row.name,
                  std::string(job.status().message()));
  }
  if (!row.progress) return job;
  if (const absl::Status progress = DecodeProgress(*row.progress, &*job); !progress.ok()) {
    Drop(StoreIncident::kDamagedProgress, row, progress);
  }
  return job;
}

void SqliteJobStore::Drop(std::string_view kind, const JobRow& row,
                          const absl::Status& cause) const {
  const bool job = kind == StoreIncident::kDamagedJob;
  const Durability durability = job ? Durability::kPowerLoss : Durability::kProcessLoss;
  bool dropped = false;
  const absl::Status stored = database_.Write(durability, [&](Connection& db) {
    const Connection::Use drop =
        job ? db.Prepare(
                  "UPDATE jobs SET damage = ? WHERE number = ? AND record = ? AND damage IS "
                  "NULL",
                  std::string(cause.message()), row.number, Blob{row.record})
            : db.Prepare("UPDATE jobs SET progress = NULL WHERE number = ? AND progress = ?",
                         row.number, Blob{*row.progress});
    dropped = drop->exec() > 0;
    return absl::OkStatus();
  });
  if (dropped || !stored.ok()) on_damage_({kind, row.name, row.tenant, cause});
}

absl::Status SqliteJobStore::CheckRecords() const {
  std::vector<StoreIncident> known;
  SPARSEFW_RETURN_IF_ERROR(ReadRows(
      database_,
      [&](SQLite::Statement& row) {
        known.push_back({StoreIncident::kDamagedJob, row.getColumn(0).getString(),
                         row.getColumn(1).getString(),
                         absl::DataLossError(row.getColumn(2).getString())});
      },
      "SELECT name, tenant, damage FROM jobs WHERE damage IS NOT NULL ORDER BY number"));
  for (const StoreIncident& damage : known) on_damage_(damage);
  JobRows page;
  for (int64_t before = std::numeric_limits<int64_t>::max(); before != 0; before = page.next) {
    SPARSEFW_RETURN_IF_ERROR(database_.Read([&](Connection& db) {
      page = ReadJobs(db, {}, before, kRowsOfCheck);
      return absl::OkStatus();
    }));
    for (const JobRow& row : page.rows) static_cast<void>(Decode(row).ok());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SqliteJobStore::Has(std::string_view name, std::string_view tenant) const {
  bool found = false;
  SPARSEFW_RETURN_IF_ERROR(ReadRows(
      database_, [&](SQLite::Statement& /*row*/) { found = true; },
      "SELECT 1 FROM jobs WHERE name = ? AND tenant = ?", name, tenant));
  return found;
}

absl::StatusOr<std::optional<JobStore::RequestRecord>> SqliteJobStore::FindRequest(
    std::string_view tenant, std::string_view request_id) const {
  std::optional<RequestRecord> found;
  SPARSEFW_RETURN_IF_ERROR(ReadRows(
      database_,
      [&](SQLite::Statement& row) {
        found = RequestRecord{row.getColumn(0).getString(), std::string(BytesOf(row.getColumn(1)))};
      },
      "SELECT name, fingerprint FROM jobs WHERE tenant = ? AND request_id = ?", tenant,
      request_id));
  return found;
}

absl::StatusOr<JobStore::Page> SqliteJobStore::List(const JobFilter& filter, int page_size,
                                                    std::string_view page_token) const {
  if (page_size < 1) {
    return Invalid("PAGE_SIZE_INVALID", "page_size must be at least 1; got %d", page_size);
  }
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!page_token.empty()) {
    const std::optional<uint64_t> position = DecodePageToken(page_token, token_salt_);
    if (!position.has_value()) {
      return Invalid("PAGE_TOKEN_INVALID", "page_token must be one that this server returned");
    }
    before = static_cast<int64_t>(*position);
  }
  JobRows rows;
  SPARSEFW_RETURN_IF_ERROR(database_.ReadMuch([&](Connection& db) {
    rows = ReadJobs(db, filter, before, page_size);
    return absl::OkStatus();
  }));
  Page page;
  for (const JobRow& row : rows.rows) {
    absl::StatusOr<Job> job = Decode(row);
    if (job.ok() && std::ranges::includes(job->spec.labels, filter.labels)) {
      page.jobs.push_back(*std::move(job));
    }
  }
  if (rows.next != 0) {
    page.next_page_token = EncodePageToken(static_cast<uint64_t>(rows.next), token_salt_);
  }
  return page;
}

absl::StatusOr<std::vector<Job>> SqliteJobStore::ListExpired(absl::Time now, int limit) const {
  std::vector<JobRow> rows;
  SPARSEFW_RETURN_IF_ERROR(ReadRows(
      database_, [&](SQLite::Statement& row) { rows.push_back(RowOf(row)); },
      absl::StrFormat("SELECT %s FROM jobs WHERE expire_ns <= ? AND damage IS NULL ORDER BY "
                      "expire_ns LIMIT ?",
                      kRowColumns),
      absl::ToUnixNanos(now), limit));
  std::vector<Job> jobs;
  for (const JobRow& row : rows) {
    absl::StatusOr<Job> job = Decode(row);
    if (job.ok()) jobs.push_back(*std::move(job));
  }
  return jobs;
}

absl::Status SqliteJobStore::Delete(std::string_view name) {
  return database_.Write(Durability::kPowerLoss, [&](Connection& db) -> absl::Status {
    const Connection::Use remove = db.Prepare("DELETE FROM jobs WHERE name = ?", name);
    return remove->exec() > 0 ? absl::OkStatus() : JobNotFound(name);
  });
}

absl::StatusOr<std::map<JobState, int64_t>> SqliteJobStore::CountByState() const {
  std::map<JobState, int64_t> counts;
  SPARSEFW_RETURN_IF_ERROR(ReadRows(
      database_,
      [&](SQLite::Statement& row) {
        counts[static_cast<JobState>(row.getColumn(0).getInt())] = row.getColumn(1).getInt64();
      },
      "SELECT state, count(*) FROM jobs WHERE damage IS NULL GROUP BY state"));
  return counts;
}

absl::StatusOr<JobStoreUsage> SqliteJobStore::Usage() const {
  JobStoreUsage usage;
  SPARSEFW_RETURN_IF_ERROR(database_.Read([&](Connection& db) {
    usage.bytes = db.execAndGet("SELECT ifnull(sum(bytes), 0) FROM job_usage").getInt64();
    usage.damaged = db.execAndGet("SELECT count(*) FROM jobs WHERE damage IS NOT NULL").getInt64();
    return absl::OkStatus();
  }));
  return usage;
}

absl::StatusOr<std::unique_ptr<JobStore>> NewStore(Database* database,
                                                   std::unique_ptr<Database> own,
                                                   OnStoreIncident on_damage) {
  std::string salt;
  SPARSEFW_RETURN_IF_ERROR(database->Read([&](Connection& db) {
    salt = db.execAndGet("SELECT value FROM settings WHERE name = 'job_page_salt'").getString();
    return absl::OkStatus();
  }));
  if (!on_damage) on_damage = [](const StoreIncident& /*damage*/) {};
  auto store = std::make_unique<SqliteJobStore>(database, std::move(own), std::move(salt),
                                                std::move(on_damage));
  SPARSEFW_RETURN_IF_ERROR(store->CheckRecords());
  return store;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> NewSqliteJobStore(Database* database,
                                                            OnStoreIncident on_damage) {
  return NewStore(database, nullptr, std::move(on_damage));
}

absl::StatusOr<std::unique_ptr<JobStore>> NewMemoryJobStore() {
  SPARSEFW_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::InMemory());
  Database* const opened = database.get();
  return NewStore(opened, std::move(database), {});
}

}  // namespace sparsefw::server
