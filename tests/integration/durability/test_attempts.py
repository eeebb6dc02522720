"""Runs that the end of the server cuts off: which of them count, and when a job is given up."""
import signal

import pytest

from support.layers import ENDLESS, QUIET
from support.processes import HANG, Cli, wait_until
from support.rpc import Client, job_pb2, prune_service_pb2



class Killable:
    """A server that is killed and started again on the same address and state folder."""

    def __init__(self, start_server, *flags):
        self.start_server, self.flags = start_server, flags
        self.server = start_server(*flags)
        self.address, self.state_dir = self.server.address, self.server.state_dir
        self.cli = Cli(self.address)

    def kill(self):
        self.server.signal(signal.SIGKILL)
        self.server.wait()
        self.server = self.start_server("--listen", self.address, "--state-dir", self.state_dir,
                                        *self.flags)

    def get(self, job):
        client = Client(self.address)
        try:
            return client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job), timeout=HANG)
        finally:
            client.close()

    def checkpoint(self, job):
        """When the last one was written; None: there is none."""
        path = self.state_dir / "checkpoints" / f"{job.removeprefix('jobs/')}.checkpoint"
        return path.stat().st_mtime_ns if path.exists() else None


@pytest.fixture
def killable(start_server):
    return lambda *flags: Killable(start_server, *flags)


def detach(cli, layer, *flags):
    return cli.run(*layer.submit("--detach", "--json", *flags, out=False)).expect(0).json()["job"]


def test_a_job_that_gets_further_is_never_given_up(killable, big_layer):
    """With the default of three attempts its server is killed ten times."""
    server = killable("--workers", "1", "--checkpoint-period", "20ms")
    iterations, job = 60_000, None
    while job is None:
        iterations *= 2
        steps = ("--method", "sparsefw", "--iterations", str(iterations), "--report-every", "500")
        job = killed_ten_times(server, detach(server.cli, big_layer, *steps))
    server.cli.run("watch", job).expect(0)
    assert server.get(job).attempts == 11
    server.cli.run("fetch", job, "--out", big_layer.mask_file).expect(0)
    interrupted = big_layer.mask()
    server.cli.run(*big_layer.submit(*steps, "--json")).expect(0)
    assert (big_layer.mask() == interrupted).all()


def killed_ten_times(server, job):
    """The job; None where it ended before: this program was too slow to kill its server so often."""
    for kill in range(10):
        before = server.checkpoint(job)

        def ended():
            return server.get(job).state == job_pb2.JOB_STATE_SUCCEEDED

        wait_until(lambda: server.checkpoint(job) not in (None, before) or ended(), "a new checkpoint")
        server.kill()
        if ended():
            return None
        assert server.get(job).state in (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING), f"after kill {kill}"
    return job


def test_a_job_that_gets_no_further_runs_alone_and_is_then_given_up(killable, big_layer):
    server = killable("--workers", "2", "--checkpoint-period", "1h")
    suspect = detach(server.cli, big_layer, *QUIET)

    def running():
        client = Client(server.address)
        try:
            jobs = client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(
                states=[job_pb2.JOB_STATE_RUNNING]), timeout=HANG).jobs
            return {one.name for one in jobs}
        finally:
            client.close()

    wait_until(lambda: suspect in running(), "the job runs")
    server.kill()
    wait_until(lambda: suspect in running(), "a second time")
    # It comes after the suspect in the queue of the next server.
    innocent = detach(server.cli, big_layer, *ENDLESS)
    wait_until(lambda: running() == {suspect, innocent}, "beside another")
    server.kill()
    wait_until(lambda: suspect in running(), "a third time")
    assert running() == {suspect}
    server.kill()
    failed = server.get(suspect)
    assert failed.state == job_pb2.JOB_STATE_FAILED and failed.attempts == 3
    for words in ("ATTEMPTS_EXHAUSTED", "3 times in a row", "no other job running", "--max-attempts"):
        assert words in str(failed.error)
    wait_until(lambda: running() == {innocent}, "the other goes on")
    assert server.get(innocent).attempts == 2
    server.cli.run("cancel", innocent).expect(0)
