"""What reports of progress cost the disk: the store gets one a second, however many there are."""
import re
import time
from pathlib import Path

import numpy
import pytest

from support.processes import HANG, wait_until
from support.rpc import Client, job_pb2, prune_service_pb2

# Reports between two looks. As many changes of state would write a hundred MiB and more.
REPORTS = 50_000


@pytest.fixture
def server(start_server):
    # No checkpoints: they are written beside the progress.
    return start_server("--workers", "1", "--checkpoint-period", "1000h")


@pytest.fixture
def client(server):
    client = Client(server.address)
    yield client
    client.close()


def written(server):
    """Bytes that the process has written to files."""
    return int(re.search(r"^wchar: (\d+)$", Path(f"/proc/{server.process.pid}/io").read_text(), re.M)[1])


def test_a_job_that_reports_every_iteration_writes_once_a_second(server, client):
    random = numpy.random.default_rng(5)
    weight = client.upload(random.standard_normal((2, 4)).astype("<f4"), "weight")
    inputs = random.standard_normal((16, 4))
    gram = client.upload((inputs.T @ inputs).astype("<f4"), "gram")

    def create(iterations, report_every):
        spec = job_pb2.JobSpec(weight=weight, gram=gram, method=job_pb2.METHOD_SPARSEFW)
        spec.pattern.per_row.sparsity = 0.5
        spec.sparsefw.iterations, spec.sparsefw.report_every = iterations, report_every
        return client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(spec=spec), timeout=HANG).name

    def get(job):
        return client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job), timeout=HANG)

    # Accepted, started, ended: at least three times what storing a report writes.
    before = written(server)
    short = create(10, 10)
    wait_until(lambda: get(short).state == job_pb2.JOB_STATE_SUCCEEDED, "the short job ends")
    of_a_job = written(server) - before

    job = create(1 << 60, 1)
    wait_until(lambda: get(job).progress.iteration, "the job runs")
    # The clock goes first and last: what was written was written within its time.
    begin = time.monotonic()
    before, first = written(server), get(job).progress.iteration
    wait_until(lambda: get(job).progress.iteration >= first + REPORTS, "many reports")
    reports = get(job).progress.iteration - first
    bytes_of_reports = written(server) - before
    periods = time.monotonic() - begin + 1
    print(f"{bytes_of_reports} bytes of {reports} reports in {periods:.1f} s; a job {of_a_job}")
    assert bytes_of_reports < periods * of_a_job
    client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=job), timeout=HANG)
    wait_until(lambda: get(job).state == job_pb2.JOB_STATE_CANCELLED, "the job is cancelled")
