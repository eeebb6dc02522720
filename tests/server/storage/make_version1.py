"""Makes testdata/version1.db: a database of schema version 1 with two jobs, without the server's code.

    PYTHONPATH=build/tests/integration/stubs /usr/bin/python3 tests/server/storage/make_version1.py

To be run again only while version 1 is not released; afterwards the file is what old servers wrote.
"""
import re
import sqlite3
from pathlib import Path

from sparsefw.storage.v1 import job_record_pb2 as records

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[2] / "server/storage/migrations.cc"
START = 1_700_000_000  # Unix time
DAY = 86_400


def job(name, **fields):
    record = records.JobRecord(name=name.encode(), tenant=b"default", owner=b"somebody", rows=8, cols=16, **fields)
    record.spec.weight, record.spec.gram = b"tensors/00000000000000d4", b"tensors/00000000000000e5"
    record.spec.pattern.kind = records.KEEP_OF_GROUP
    record.spec.pattern.sparsity, record.spec.pattern.keep, record.spec.pattern.group = 0.5, 2, 4
    record.spec.options.method = records.SPARSEFW
    record.spec.options.iterations, record.spec.options.report_every = 2000, 100
    record.spec.options.deadline.infinite = records.Duration.FUTURE
    record.spec.deadline.infinite = records.Duration.FUTURE
    record.spec.result_ttl.seconds = DAY
    record.spec.labels.add(key=b"layer", value=b"7")
    record.create_time.seconds = START - 100
    record.deadline.infinite = records.Duration.FUTURE
    record.start_time.seconds = START - 50
    return record


def main():
    path = HERE / "testdata/version1.db"
    path.unlink(missing_ok=True)
    schema = re.search(r'kVersion1 = R"sql\((.*?)\)sql"', SOURCE.read_text(), re.S)[1]
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA page_size = 1024")
    database.executescript(schema)
    database.execute("PRAGMA application_id = 0x53504657")
    database.execute("PRAGMA user_version = 1")

    ended = job("jobs/00000000000000a1", state=records.SUCCEEDED, revision=9, state_revision=9, attempts=1)
    for state, revision in ((records.QUEUED, 1), (records.RUNNING, 2), (records.SUCCEEDED, 9)):
        ended.states.add(state=state, revision=revision)
    ended.result.mask, ended.result.device = b"tensors/00000000000000c3", b"cpu"
    ended.result.solve.final_loss = 0.1
    ended.end_time.seconds = START
    ended.expire_time.seconds = START + DAY
    database.execute(
        "INSERT INTO jobs (name, tenant, state, expire_ns, request_id, fingerprint, record) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ("jobs/00000000000000a1", "default", records.SUCCEEDED, (START + DAY) * 10**9, "request-1", b"body",
         ended.SerializeToString()))

    running = job("jobs/00000000000000b2", state=records.RUNNING, revision=2, state_revision=2, attempts=1)
    for state, revision in ((records.QUEUED, 1), (records.RUNNING, 2)):
        running.states.add(state=state, revision=revision)
    running.end_time.infinite = records.Duration.PAST
    running.expire_time.infinite = records.Duration.FUTURE
    progress = records.ProgressRecord(revision=12)
    progress.progress.iteration, progress.progress.iterations_total = 1000, 2000
    database.execute(
        "INSERT INTO jobs (name, tenant, state, record, progress) VALUES (?, ?, ?, ?, ?)",
        ("jobs/00000000000000b2", "default", records.RUNNING, running.SerializeToString(),
         progress.SerializeToString()))
    database.execute("VACUUM")
    database.close()


if __name__ == "__main__":
    main()
