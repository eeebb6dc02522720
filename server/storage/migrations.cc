#include "server/storage/migrations.h"

namespace sparsefw::server {
namespace {

// Bodies of jobs are sparsefw.storage.v1.JobRecord, so that most changes of a job
// need no migration. What is searched for is a column.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of acceptance, never reused
  name TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  state INTEGER NOT NULL,
  expire_ns INTEGER,                         -- Unix time; null: not ended
  request_id TEXT,                           -- null: none
  fingerprint BLOB,
  record BLOB NOT NULL,
  progress BLOB                              -- ProgressRecord, newer than record; or null
);
CREATE UNIQUE INDEX jobs_request ON jobs (tenant, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX jobs_state ON jobs (state, number);
CREATE INDEX jobs_expire ON jobs (expire_ns) WHERE expire_ns IS NOT NULL;

-- Complete tensors, and uploads that become one under the same id.
CREATE TABLE tensors (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  owner TEXT NOT NULL,
  request_id TEXT,
  from_upload INTEGER NOT NULL,
  transient INTEGER NOT NULL,                -- belongs to the job of a Prune call
  job TEXT,                                  -- whose result it is, else null
  kind INTEGER NOT NULL,
  dtype INTEGER NOT NULL,
  rows INTEGER NOT NULL,
  cols INTEGER NOT NULL,
  token_count INTEGER NOT NULL,
  activation_dtype INTEGER,                  -- of a Gram that was accumulated, else null
  complete INTEGER NOT NULL,
  committed INTEGER NOT NULL,                -- bytes, of an accumulation tokens
  crc32c INTEGER NOT NULL,                   -- of these bytes, or of the file of the sums
  sums TEXT,                                 -- file of the sums of an accumulation
  create_ns INTEGER NOT NULL,
  use_ns INTEGER NOT NULL,                   -- when it was used last
  expire_ns INTEGER                          -- null: never
);
CREATE UNIQUE INDEX tensors_request ON tensors (tenant, request_id) WHERE request_id IS NOT NULL;

CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO settings VALUES ('tensor_page_salt', hex(randomblob(16)));
-- Tells page tokens of this database from those of another one.
INSERT INTO settings VALUES ('job_page_salt', lower(hex(randomblob(8))));
)sql";

constexpr const char* kMigrations[] = {kVersion1};

}  // namespace

std::span<const char* const> Migrations() { return kMigrations; }

}  // namespace sparsefw::server
