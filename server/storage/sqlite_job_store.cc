#include "server/storage/sqlite_job_store.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "SQLiteCpp/SQLiteCpp.h"
#include "absl/strings/str_format.h"
#include "server/storage/job_record.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

// Of a list with a filter that the database does not know: read at once, so that
// other readers get their turn in between.
constexpr int64_t kRowsAtOnce = 256;

// A job as it lies in the table.
struct Row {
  int64_t number = 0;
  std::string record;
  std::optional<std::string> progress;
};
constexpr char kRowColumns[] = "number, record, progress";

std::string_view BytesOf(const SQLite::Column& column) {
  return {static_cast<const char*>(column.getBlob()), static_cast<size_t>(column.getBytes())};
}

void BindText(SQLite::Statement& statement, int index, std::string_view text) {
  statement.bind(index, std::string(text));
}

void BindBytes(SQLite::Statement& statement, int index, std::string_view bytes) {
  statement.bind(index, bytes.data(), static_cast<int>(bytes.size()));
}

Row RowOf(SQLite::Statement& statement) {
  Row row{statement.getColumn(0).getInt64(), std::string(BytesOf(statement.getColumn(1))), {}};
  if (!statement.isColumnNull(2)) row.progress = std::string(BytesOf(statement.getColumn(2)));
  return row;
}

absl::StatusOr<Job> JobOf(const Row& row) {
  SPARSEFW_ASSIGN_OR_RETURN(Job job, DecodeJob(row.record));
  if (row.progress) SPARSEFW_RETURN_IF_ERROR(DecodeProgress(*row.progress, &job));
  return job;
}

// Rounded up, so that no job expires early.
void BindExpiry(SQLite::Statement& statement, int index, const Job& job) {
  if (!IsTerminal(job.state)) return statement.bind(index);
  statement.bind(index, absl::ToUnixNanos(job.expire_time + absl::Nanoseconds(3) / 4));
}

bool HasLabels(const Job& job, const JobFilter& filter) {
  return std::all_of(filter.labels.begin(), filter.labels.end(), [&job](const auto& label) {
    const auto own = job.spec.labels.find(label.first);
    return own != job.spec.labels.end() && own->second == label.second;
  });
}

// One state is an index lookup that comes in order of numbers; the rows of several
// would have to be sorted, so they are picked while the table is read in order (+).
std::string ListSql(const JobFilter& filter) {
  std::string sql = absl::StrFormat("SELECT %s FROM jobs WHERE number < ?1", kRowColumns);
  if (!filter.tenant.empty()) sql += " AND tenant = ?3";
  if (filter.states.size() == 1) {
    sql += absl::StrFormat(" AND state = %d", static_cast<int>(filter.states.front()));
  } else if (!filter.states.empty()) {
    std::string states;
    for (const JobState state : filter.states) {
      absl::StrAppendFormat(&states, "%s%d", states.empty() ? "" : ", ", static_cast<int>(state));
    }
    sql += absl::StrFormat(" AND +state IN (%s)", states);
  }
  return sql + " ORDER BY number DESC LIMIT ?2";
}

class SqliteJobStore final : public JobStore {
 public:
  SqliteJobStore(Database* database, std::string token_prefix)
      : database_(*database), token_prefix_(std::move(token_prefix)) {}

  bool durable() const override { return true; }
  absl::Status Insert(const Job& job, std::string_view request_id,
                      std::string_view fingerprint) override;
  absl::Status Update(const Job& job) override;
  absl::Status UpdateProgress(const Job& job) override;
  absl::StatusOr<Job> Get(std::string_view name) const override;
  absl::StatusOr<std::optional<RequestRecord>> FindRequest(
      std::string_view tenant, std::string_view request_id) const override;
  absl::StatusOr<Page> List(const JobFilter& filter, int page_size,
                            std::string_view page_token) const override;
  absl::StatusOr<std::vector<Job>> ListExpired(absl::Time now, int limit) const override;
  absl::Status Delete(std::string_view name) override;
  absl::StatusOr<std::map<JobState, int64_t>> CountByState() const override;

 private:
  absl::StatusOr<int64_t> ParseToken(std::string_view token) const;
  absl::StatusOr<std::vector<Row>> ReadRows(const JobFilter& filter, int64_t before,
                                            int64_t limit) const;

  Database& database_;
  const std::string token_prefix_;  // of this database: another one's numbers are others
};

absl::Status SqliteJobStore::Insert(const Job& job, std::string_view request_id,
                                    std::string_view fingerprint) {
  const std::string record = EncodeJob(job);
  return database_.Write(Durability::kPowerLoss, [&](SQLite::Database& db) -> absl::Status {
    SQLite::Statement taken(db, "SELECT name FROM jobs WHERE name = ?");
    BindText(taken, 1, job.name);
    if (taken.executeStep()) {
      return absl::AlreadyExistsError(absl::StrFormat("%s exists already", job.name));
    }
    if (!request_id.empty()) {
      SQLite::Statement used(db, "SELECT name FROM jobs WHERE tenant = ? AND request_id = ?");
      BindText(used, 1, job.owner.tenant);
      BindText(used, 2, request_id);
      if (used.executeStep()) {
        return absl::AlreadyExistsError(absl::StrFormat("request_id \"%s\" belongs to %s",
                                                        request_id, used.getColumn(0).getString()));
      }
    }
    SQLite::Statement insert(
        db,
        "INSERT INTO jobs (name, tenant, state, expire_ns, request_id, fingerprint, record) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)");
    BindText(insert, 1, job.name);
    BindText(insert, 2, job.owner.tenant);
    insert.bind(3, static_cast<int>(job.state));
    BindExpiry(insert, 4, job);
    if (!request_id.empty()) {
      BindText(insert, 5, request_id);
      BindBytes(insert, 6, fingerprint);
    }
    BindBytes(insert, 7, record);
    insert.exec();
    return absl::OkStatus();
  });
}

absl::Status SqliteJobStore::Update(const Job& job) {
  const std::string record = EncodeJob(job);
  return database_.Write(Durability::kPowerLoss, [&](SQLite::Database& db) -> absl::Status {
    SQLite::Statement update(
        db, "UPDATE jobs SET state = ?, expire_ns = ?, record = ?, progress = NULL WHERE name = ?");
    update.bind(1, static_cast<int>(job.state));
    BindExpiry(update, 2, job);
    BindBytes(update, 3, record);
    BindText(update, 4, job.name);
    return update.exec() > 0 ? absl::OkStatus() : JobNotFound(job.name);
  });
}

absl::Status SqliteJobStore::UpdateProgress(const Job& job) {
  const std::string progress = EncodeProgress(job);
  return database_.Write(Durability::kProcessLoss, [&](SQLite::Database& db) -> absl::Status {
    SQLite::Statement update(db, "UPDATE jobs SET progress = ? WHERE name = ?");
    BindBytes(update, 1, progress);
    BindText(update, 2, job.name);
    return update.exec() > 0 ? absl::OkStatus() : JobNotFound(job.name);
  });
}

absl::StatusOr<Job> SqliteJobStore::Get(std::string_view name) const {
  std::optional<Row> row;
  SPARSEFW_RETURN_IF_ERROR(database_.Read([&](SQLite::Database& db) {
    SQLite::Statement select(db,
                             absl::StrFormat("SELECT %s FROM jobs WHERE name = ?", kRowColumns));
    BindText(select, 1, name);
    if (select.executeStep()) row = RowOf(select);
    return absl::OkStatus();
  }));
  if (!row) return JobNotFound(name);
  return JobOf(*row);
}

absl::StatusOr<std::optional<JobStore::RequestRecord>> SqliteJobStore::FindRequest(
    std::string_view tenant, std::string_view request_id) const {
  std::optional<RequestRecord> found;
  SPARSEFW_RETURN_IF_ERROR(database_.Read([&](SQLite::Database& db) {
    SQLite::Statement select(
        db, "SELECT name, fingerprint FROM jobs WHERE tenant = ? AND request_id = ?");
    BindText(select, 1, tenant);
    BindText(select, 2, request_id);
    if (select.executeStep()) {
      found =
          RequestRecord{select.getColumn(0).getString(), std::string(BytesOf(select.getColumn(1)))};
    }
    return absl::OkStatus();
  }));
  return found;
}

absl::StatusOr<JobStore::Page> SqliteJobStore::List(const JobFilter& filter, int page_size,
                                                    std::string_view page_token) const {
  if (page_size < 1) {
    return Invalid("PAGE_SIZE_INVALID", "page_size must be at least 1; got %d", page_size);
  }
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!page_token.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(before, ParseToken(page_token));
  }
  const int64_t rows_at_once = filter.labels.empty() ? int64_t{page_size} + 1 : kRowsAtOnce;
  Page page;
  int64_t last_listed = 0;
  while (true) {
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<Row> rows, ReadRows(filter, before, rows_at_once));
    for (const Row& row : rows) {
      SPARSEFW_ASSIGN_OR_RETURN(Job job, JobOf(row));
      if (!HasLabels(job, filter)) continue;
      if (page.jobs.size() == static_cast<size_t>(page_size)) {
        page.next_page_token = absl::StrFormat("%s%x", token_prefix_, last_listed);
        return page;
      }
      page.jobs.push_back(std::move(job));
      last_listed = row.number;
    }
    if (std::ssize(rows) < rows_at_once) return page;
    before = rows.back().number;
  }
}

absl::StatusOr<std::vector<Row>> SqliteJobStore::ReadRows(const JobFilter& filter, int64_t before,
                                                          int64_t limit) const {
  std::vector<Row> rows;
  SPARSEFW_RETURN_IF_ERROR(database_.Read([&](SQLite::Database& db) {
    SQLite::Statement select(db, ListSql(filter));
    select.bind(1, before);
    select.bind(2, limit);
    if (!filter.tenant.empty()) BindText(select, 3, filter.tenant);
    while (select.executeStep()) rows.push_back(RowOf(select));
    return absl::OkStatus();
  }));
  return rows;
}

absl::StatusOr<std::vector<Job>> SqliteJobStore::ListExpired(absl::Time now, int limit) const {
  std::vector<Row> rows;
  SPARSEFW_RETURN_IF_ERROR(database_.Read([&](SQLite::Database& db) {
    SQLite::Statement select(
        db, absl::StrFormat("SELECT %s FROM jobs WHERE expire_ns <= ? ORDER BY expire_ns LIMIT ?",
                            kRowColumns));
    select.bind(1, absl::ToUnixNanos(now));
    select.bind(2, limit);
    while (select.executeStep()) rows.push_back(RowOf(select));
    return absl::OkStatus();
  }));
  std::vector<Job> jobs;
  for (const Row& row : rows) {
    SPARSEFW_ASSIGN_OR_RETURN(Job job, JobOf(row));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

absl::Status SqliteJobStore::Delete(std::string_view name) {
  return database_.Write(Durability::kPowerLoss, [&](SQLite::Database& db) -> absl::Status {
    SQLite::Statement remove(db, "DELETE FROM jobs WHERE name = ?");
    BindText(remove, 1, name);
    return remove.exec() > 0 ? absl::OkStatus() : JobNotFound(name);
  });
}

absl::StatusOr<std::map<JobState, int64_t>> SqliteJobStore::CountByState() const {
  std::map<JobState, int64_t> counts;
  SPARSEFW_RETURN_IF_ERROR(database_.Read([&](SQLite::Database& db) {
    SQLite::Statement select(db, "SELECT state, count(*) FROM jobs GROUP BY state");
    while (select.executeStep()) {
      counts[static_cast<JobState>(select.getColumn(0).getInt())] = select.getColumn(1).getInt64();
    }
    return absl::OkStatus();
  }));
  return counts;
}

absl::StatusOr<int64_t> SqliteJobStore::ParseToken(std::string_view token) const {
  const absl::Status bad =
      Invalid("PAGE_TOKEN_INVALID", "page_token must be one that this server returned");
  if (!token.starts_with(token_prefix_)) return bad;
  token.remove_prefix(token_prefix_.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number, 16);
  if (error != std::errc() || end != token.data() + token.size()) return bad;
  return number;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> NewSqliteJobStore(Database* database) {
  std::string salt;
  SPARSEFW_RETURN_IF_ERROR(database->Read([&](SQLite::Database& db) {
    salt = db.execAndGet("SELECT value FROM settings WHERE name = 'job_page_salt'").getString();
    return absl::OkStatus();
  }));
  return std::make_unique<SqliteJobStore>(database, salt + "-");
}

}  // namespace sparsefw::server
