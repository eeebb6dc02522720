#include "server/storage/migrations.h"

#include "server/storage/job_rows.h"

namespace sparsefw::server {
namespace {

// Bodies of jobs are sparsefw.storage.v1.JobRecord, so that most changes of a job need no
// migration. Values that are searched for are columns.
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

constexpr const char* kVersion2 = R"sql(
ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;  -- KeptBytes
ALTER TABLE jobs ADD COLUMN crc32c INTEGER NOT NULL DEFAULT 0;  -- of the record
ALTER TABLE jobs ADD COLUMN damage TEXT;  -- why the record cannot be read; null: it can
-- Damaged jobs are in no list.
DROP INDEX jobs_state;
DROP INDEX jobs_expire;
CREATE INDEX jobs_state ON jobs (state, number) WHERE damage IS NULL;
CREATE INDEX jobs_expire ON jobs (expire_ns) WHERE expire_ns IS NOT NULL AND damage IS NULL;
CREATE INDEX jobs_tenant ON jobs (tenant, number) WHERE damage IS NULL;
CREATE INDEX jobs_tenant_state ON jobs (tenant, state, number) WHERE damage IS NULL;
CREATE INDEX jobs_damaged ON jobs (number) WHERE damage IS NOT NULL;

CREATE TABLE job_labels (
  label INTEGER NOT NULL,  -- LabelHash
  number INTEGER NOT NULL,
  PRIMARY KEY (label, number)
) WITHOUT ROWID;
CREATE INDEX job_labels_number ON job_labels (number);

-- Jobs of a tenant and what they count for.
CREATE TABLE job_usage (
  tenant TEXT PRIMARY KEY,
  jobs INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN
  INSERT INTO job_usage VALUES (NEW.tenant, 1, NEW.bytes)
    ON CONFLICT (tenant) DO UPDATE SET jobs = jobs + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER job_resized AFTER UPDATE OF bytes ON jobs WHEN NEW.bytes <> OLD.bytes BEGIN
  UPDATE job_usage SET bytes = bytes + NEW.bytes - OLD.bytes WHERE tenant = NEW.tenant;
END;
CREATE TRIGGER job_removed AFTER DELETE ON jobs BEGIN
  DELETE FROM job_labels WHERE number = OLD.number;
  UPDATE job_usage SET jobs = jobs - 1, bytes = bytes - OLD.bytes WHERE tenant = OLD.tenant;
  DELETE FROM job_usage WHERE tenant = OLD.tenant AND jobs <= 0;
END;

-- Of the request that made the upload; null: there is none, or version 1 wrote it.
ALTER TABLE tensors ADD COLUMN request_fingerprint BLOB;

-- The spool of this database has it too.
INSERT INTO settings VALUES ('store_id', lower(hex(randomblob(16))));
)sql";

constexpr Migration kMigrations[] = {{kVersion1, nullptr}, {kVersion2, IndexJobs}};

}  // namespace

std::span<const Migration> Migrations() { return kMigrations; }

}  // namespace sparsefw::server
