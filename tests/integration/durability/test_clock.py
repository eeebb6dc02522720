"""The wall clock is set while the server runs: by libfaketime, which leaves the steady clock as it is."""
import os
import threading
from pathlib import Path

import numpy
import pytest

from support.processes import HANG, wait_until
from support.rpc import (Client, job_pb2, prune_service_pb2, tensor_service_pb2)

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
pytestmark = [
    pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime (Debian package faketime)"),
    pytest.mark.skipif(bool(os.environ.get("SPARSEFW_SANITIZER")),
                       reason="libfaketime cannot be loaded before a sanitizer"),
]


class SetClock:
    """The clock of a server, set by a file that libfaketime reads."""

    def __init__(self, folder):
        self.path = folder / "clock"
        self.set("+0")
        self.env = {"LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME_TIMESTAMP_FILE": str(self.path),
                    "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                    "DONT_FAKE_MONOTONIC": "1"}

    def set(self, offset):
        new = self.path.with_suffix(".new")
        new.write_text(offset + "\n")
        new.replace(self.path)


@pytest.fixture
def clock(folder):
    return SetClock(folder)


@pytest.fixture
def server(start_server, clock):
    return start_server("--gc-interval", "200ms", "--upload-idle-ttl", "10m", env=clock.env)


@pytest.fixture
def client(server):
    client = Client(server.address)
    yield client
    client.close()


@pytest.fixture
def endless(client, layer):
    """endless(seconds) -> the name of a job that ends by its deadline alone, and has a mask. A machine that is
    too slow for this deadline gets a longer one."""
    inputs = {"weight": client.upload(layer.weight, "weight"),
              "gram": client.upload(layer.gram, "gram")}

    def create(seconds):
        spec = job_pb2.JobSpec(method=job_pb2.METHOD_SPARSEFW, **inputs)
        spec.pattern.per_row.sparsity = 0.5
        spec.sparsefw.iterations = 1 << 60
        spec.deadline.seconds = seconds
        job = client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(spec=spec), timeout=HANG)
        found = wait_until(lambda: runs_or_failed(client, job.name), "the job runs")
        if found.state != job_pb2.JOB_STATE_FAILED:
            return job.name
        assert "DEADLINE_EXCEEDED" in str(found.error)
        return create(2 * seconds)

    return create


def runs_or_failed(client, name):
    job = get(client, name)
    return job if job.HasField("progress") or job.state in (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED) else None


def get(client, job):
    return client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job), timeout=HANG)


def served_time(client, layer):
    """What the server's wall clock says: it must have noticed that it was set."""
    return client.create_upload(layer.weight, "weight").create_time.seconds


def moved(client, layer, clock, offset, seconds):
    before = served_time(client, layer)
    clock.set(offset)
    wait_until(lambda: abs(served_time(client, layer) - before - seconds) < abs(seconds) / 2,
               "the clock is set")


def test_a_deadline_comes_when_the_clock_is_set_back(client, layer, clock, endless):
    job = endless(4)
    moved(client, layer, clock, "-1d", -86400)
    wait_until(lambda: get(client, job).state == job_pb2.JOB_STATE_SUCCEEDED, "the deadline")
    assert get(client, job).result.stop_reason == job_pb2.STOP_REASON_DEADLINE
    job = endless(2)
    wait_until(lambda: get(client, job).state == job_pb2.JOB_STATE_SUCCEEDED, "a new deadline")


def test_nothing_ends_early_when_the_clock_is_set_ahead(client, layer, clock, endless, server):
    ended = endless(1)
    wait_until(lambda: get(client, ended).state == job_pb2.JOB_STATE_SUCCEEDED, "the deadline")
    job = endless(3600)
    upload = client.create_upload(numpy.zeros((8, 8), "<f4"), "weight").name
    moved(client, layer, clock, "+26h", 26 * 3600)
    # Several collections of garbage.
    threading.Event().wait(1)  # not a limit
    assert get(client, job).state == job_pb2.JOB_STATE_RUNNING, "its hour is not over"
    client.tensors.GetUpload(tensor_service_pb2.GetUploadRequest(name=upload), timeout=HANG)
    assert client.read(get(client, ended).result.mask), "kept for 24 h"
    client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=job), timeout=HANG)
    assert server.stop() == 0, "a drain ends as well"
