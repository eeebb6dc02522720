// One page of a list: an index leads to its rows, whatever is asked for.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/storage/job_rows.h"

namespace sparsefw::server {
namespace {

// Entries of an index that one page looks at, so that a filter that matches little takes
// many short calls, between which others have their turn.
constexpr int kEntriesOfPage = 2000;
// Records have a few hundred bytes, or a hundred thousand.
constexpr int64_t kBytesOfPage = int64_t{1} << 20;

// The source of a page: entries in order of their numbers.
struct Source {
  std::string from;                  // tables
  std::string number;                // the column
  std::string where;                 // what the index answers
  std::string rest = {};             // what has to be looked at
  std::vector<int64_t> labels = {};  // parameters from ?5 on; the index leads to the first
};
// Parameters: ?1 the number below which the page begins, ?2 a limit, ?3 the least number,
// ?4 the tenant.

std::string StatesOf(const JobFilter& filter) {
  return absl::StrJoin(filter.states, ", ", [](std::string* text, JobState state) {
    absl::StrAppendFormat(text, "%d", static_cast<int>(state));
  });
}

Source ByLabel(const JobFilter& filter) {
  Source source{.from = "job_labels CROSS JOIN jobs ON jobs.number = job_labels.number",
                .number = "job_labels.number",
                .where = "job_labels.label = ?5",
                .rest = " AND jobs.damage IS NULL"};
  for (const auto& [key, value] : filter.labels) {
    source.labels.push_back(LabelHash(filter.tenant, key, value));
  }
  for (size_t i = 1; i < source.labels.size(); ++i) {
    absl::StrAppendFormat(&source.rest,
                          " AND EXISTS (SELECT 1 FROM job_labels AS other WHERE other.label = ?%d "
                          "AND other.number = jobs.number)",
                          5 + i);
  }
  if (!filter.states.empty()) {
    absl::StrAppendFormat(&source.rest, " AND jobs.state IN (%s)", StatesOf(filter));
  }
  return source;
}

// Numbers come in order under each value of the columns before them, so one state is part
// of what the index answers, and several are looked at (+).
Source ByColumns(const JobFilter& filter) {
  const bool one_state = filter.states.size() == 1;
  Source source{.from = "jobs", .number = "jobs.number", .where = "jobs.damage IS NULL"};
  if (!filter.tenant.empty()) source.where += " AND jobs.tenant = ?4";
  if (one_state) absl::StrAppendFormat(&source.where, " AND jobs.state = %s", StatesOf(filter));
  if (filter.states.size() > 1) {
    absl::StrAppendFormat(&source.rest, " AND +jobs.state IN (%s)", StatesOf(filter));
  }
  if (!filter.tenant.empty()) {
    source.from += one_state ? " INDEXED BY jobs_tenant_state" : " INDEXED BY jobs_tenant";
  }
  return source;
}

void Bind(SQLite::Statement& statement, const Source& source, const JobFilter& filter,
          size_t labels) {
  if (!filter.tenant.empty() && source.labels.empty()) statement.bind(4, filter.tenant);
  for (size_t i = 0; i < labels; ++i) statement.bind(5 + static_cast<int>(i), source.labels[i]);
}

// Where the page ends and the next one begins: above the first entry that it does not look
// at; 0: it looks at all.
int64_t FloorOf(SQLite::Database& db, const Source& source, const JobFilter& filter,
                int64_t before) {
  const std::string table = source.labels.empty() ? source.from : "job_labels";
  SQLite::Statement select(
      db, absl::StrFormat("SELECT %s FROM %s WHERE %s AND %s < ?1 ORDER BY %s DESC LIMIT 1 "
                          "OFFSET ?2",
                          source.number, table, source.where, source.number, source.number));
  select.bind(1, before);
  select.bind(2, kEntriesOfPage);
  Bind(select, source, filter, std::min<size_t>(source.labels.size(), 1));
  return select.executeStep() ? select.getColumn(0).getInt64() + 1 : 0;
}

}  // namespace

JobRows ReadJobs(SQLite::Database& db, const JobFilter& filter, int64_t before, int page_size) {
  const bool by_label = !filter.labels.empty() && !filter.tenant.empty();
  const Source source = by_label ? ByLabel(filter) : ByColumns(filter);
  JobRows page;
  page.next = FloorOf(db, source, filter, before);
  SQLite::Statement select(
      db, absl::StrFormat("SELECT %s FROM %s WHERE %s AND %s < ?1 AND %s >= ?3%s ORDER BY %s DESC "
                          "LIMIT ?2",
                          kRowColumns, source.from, source.where, source.number, source.number,
                          source.rest, source.number));
  select.bind(1, before);
  select.bind(2, int64_t{page_size} + 1);
  select.bind(3, page.next);
  Bind(select, source, filter, source.labels.size());
  int64_t bytes = 0;
  while (select.executeStep()) {
    if (std::ssize(page.rows) == page_size || bytes >= kBytesOfPage) {
      page.next = page.rows.back().number;
      break;
    }
    page.rows.push_back(RowOf(select));
    bytes += std::ssize(page.rows.back().record);
  }
  return page;
}

}  // namespace sparsefw::server
