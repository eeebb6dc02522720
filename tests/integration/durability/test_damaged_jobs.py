"""Rows of the database that something has damaged: each is named, kept apart, and stops nothing else."""
import re
import sqlite3
import urllib.request

import grpc
import pytest

from sparsefw.v1 import job_pb2, prune_service_pb2
from support.processes import HANG, Cli, wait_until
from support.rpc import Client, refusal

CODE = grpc.StatusCode


class World:
    """A server, a client, and the inputs of jobs; the server can be stopped and started again."""

    def __init__(self, start_server, layer, *flags):
        self.start_server, self.flags = start_server, flags
        self.server = start_server(*flags)
        self.state_dir = self.server.state_dir
        self.client = Client(self.server.address)
        self.inputs = (self.client.upload(layer.weight, "weight"), self.client.upload(layer.gram, "gram"))

    def again(self, *flags):
        self.server = self.start_server("--state-dir", self.state_dir, *self.flags, *flags)
        self.client.close()
        self.client = Client(self.server.address)

    def kill(self):
        self.server.close()

    def ended(self, **fields):
        spec = job_pb2.JobSpec(weight=self.inputs[0], gram=self.inputs[1], method=job_pb2.METHOD_WANDA, **fields)
        spec.pattern.per_row.sparsity = 0.5
        spec.result_ttl.seconds = 3600
        name = self.client.jobs.CreateJob(prune_service_pb2.CreateJobRequest(spec=spec), timeout=HANG).name
        wait_until(lambda: self.get(name).state == job_pb2.JOB_STATE_SUCCEEDED, "the job ends")
        return name

    def get(self, name):
        return self.client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=name), timeout=HANG)

    def names(self):
        return [job.name for job in
                self.client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(), timeout=HANG).jobs]

    def sql(self, statement, *values):
        database = sqlite3.connect(self.state_dir / "sparsefw.db", timeout=HANG)
        with database:
            database.execute(statement, values)
        database.close()

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.server.metrics}/metrics", timeout=HANG) as answer:
            return float(re.search(rf"^{name} (\S+)$", answer.read().decode(), re.M)[1])


@pytest.fixture
def world(start_server, layer):
    worlds = []

    def start(*flags):
        worlds.append(World(start_server, layer, *flags))
        return worlds[-1]

    yield start
    for one in worlds:
        one.client.close()


DAMAGED = (CODE.DATA_LOSS, "JOB_DAMAGED")


def test_a_damaged_job_is_named_and_stops_no_other(world):
    one = world()
    jobs = [one.ended() for _ in range(4)]
    one.kill()
    one.sql("UPDATE jobs SET record = x'ff00ff' WHERE name = ?", jobs[1])
    one.again()
    assert one.names() == [jobs[3], jobs[2], jobs[0]]
    assert refusal(lambda: one.get(jobs[1])) == DAMAGED
    assert one.get(jobs[0]).result.mask
    assert one.metric("sparsefw_jobs_damaged") == 1
    named = [line for line in one.server.log().splitlines() if "store_incident" in line]
    assert len(named) == 1 and "kind=damaged_job" in named[0] and jobs[1] in named[0], named
    # It is there until somebody deletes it, and then its mask is gone, too.
    tensors = one.metric("sparsefw_tensors")
    one.client.jobs.DeleteJob(prune_service_pb2.DeleteJobRequest(name=jobs[1]), timeout=HANG)
    assert refusal(lambda: one.get(jobs[1])) == (CODE.NOT_FOUND, "JOB_NOT_FOUND")
    assert one.metric("sparsefw_tensors") == tensors - 1
    assert one.metric("sparsefw_jobs_damaged") == 0


def test_the_cli_deletes_a_damaged_job(world):
    one = world()
    job = one.ended()
    one.kill()
    one.sql("UPDATE jobs SET record = x'ff00ff' WHERE name = ?", job)
    one.again()
    cli = Cli(one.server.address)
    cli.run("status", job).refused(3, "damaged")
    done = cli.run("delete", job).expect(0)
    assert done.out == f"{job} deleted\n"
    assert "inputs" in done.sentence, done.err
    assert refusal(lambda: one.get(job)) == (CODE.NOT_FOUND, "JOB_NOT_FOUND")
    cli.run("delete", job).refused(3, job)


def test_others_expire_beside_a_damaged_job(world):
    one = world("--gc-interval", "100ms")
    jobs = [one.ended() for _ in range(4)]
    # While the server runs: the row is read when it expires, as the first.
    one.sql("UPDATE jobs SET record = x'ff00ff' WHERE name = ?", jobs[1])
    one.sql("UPDATE jobs SET expire_ns = number + (name != ?) * 10", jobs[1])
    for name in (jobs[0], jobs[2], jobs[3]):
        wait_until(lambda name=name: absent(one, name), "it expires")
    assert refusal(lambda: one.get(jobs[1])) == DAMAGED
    assert f"name={jobs[1]}" in one.server.log()
    assert one.names() == []


def absent(one, name):
    try:
        return not one.get(name)
    except grpc.RpcError as error:
        return error.code() == CODE.NOT_FOUND


def test_damaged_progress_is_only_lost(world):
    one = world()
    job = one.ended()
    one.sql("UPDATE jobs SET progress = x'ffff' WHERE name = ?", job)
    assert one.get(job).state == job_pb2.JOB_STATE_SUCCEEDED
    assert one.names() == [job]
    assert "kind=damaged_progress" in one.server.log()


def test_damaged_pages_are_an_error_and_no_crash(world):
    one = world()
    for _ in range(3):
        one.ended()
    assert one.server.stop() == 0
    path = one.state_dir / "sparsefw.db"
    data = bytearray(path.read_bytes())
    for at in range(4096, len(data), 4096):
        data[at:at + 64] = b"\x5a" * 64
    path.write_bytes(data)
    server = one.start_server("--state-dir", one.state_dir, wait=False)
    assert server.wait() == 1
    assert "damaged" in server.log().splitlines()[-1], server.log()
