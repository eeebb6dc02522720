"""Jobs outlive the server: kill -9, drains, and starts on what an earlier server has left."""
import re
import shutil
import signal
import sqlite3
import threading
import time
import urllib.request

import grpc
import pytest

from support.layers import ENDLESS, QUIET
from support.processes import BIN_DIR, HANG, Cli, finish, in_time, wait_until
from support.refusals import loopback, refuses
from support.rpc import Client, error_info, job_pb2, prune_service_pb2, prune_stream, tensor_service_pb2

FAILPOINTS = BIN_DIR.parent / "tests/sparsefw-server-failpoints"

# Jobs of an earlier server can go on only where their tensors outlive it too.
DURABLE_TENSORS = True
needs_tensors = pytest.mark.skipif(not DURABLE_TENSORS, reason="needs durable tensors")

LONG = ("--method", "sparsefw", "--iterations", "60000", "--report-every", "500")


class Restartable:
    """A server that can be killed and started again on the same address and state folder."""

    def __init__(self, start_server, *flags):
        self.start_server, self.flags = start_server, flags
        begin = time.monotonic()
        self.server = start_server(*flags)
        self.start_seconds = time.monotonic() - begin
        self.address, self.state_dir = self.server.address, self.server.state_dir
        self.cli = Cli(self.address)

    def again(self, *flags):
        self.server = self.start_server("--listen", self.address, "--state-dir", self.state_dir,
                                        *self.flags, *flags)

    def kill(self):
        self.server.signal(signal.SIGKILL)
        self.server.wait()

    def drain(self):
        self.server.signal(signal.SIGTERM)
        assert self.server.wait() == 0, self.server.log()

    def database(self):
        return sqlite3.connect(f"file:{self.state_dir}/sparsefw.db?mode=ro", uri=True)

    def states(self):
        """By name, in the order of acceptance; of a server that has ended."""
        with self.database() as database:
            return dict(database.execute("SELECT name, state FROM jobs ORDER BY number"))

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.server.metrics}/metrics", timeout=HANG) as answer:
            return float(re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.M)[1])

    def get(self, job):
        client = Client(self.address)
        try:
            return client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job), timeout=HANG)
        finally:
            client.close()


@pytest.fixture
def restartable(start_server):
    return lambda *flags: Restartable(start_server, "--workers", "1", *flags)


def detach(cli, layer, *flags):
    return cli.run(*layer.submit("--detach", "--json", *flags, out=False)).expect(0).json()["job"]


def runs(cli, job, iterations=0):
    def far_enough():
        status = cli.run("status", job, "--json").expect(0).json()
        return status["state"] == "RUNNING" and \
            (not iterations or (status.get("progress") or {}).get("iteration", 0) >= iterations)
    wait_until(far_enough, "job runs")


def test_ended_jobs_are_there_after_a_kill(restartable, layer):
    server = restartable()
    names = [detach(server.cli, layer, "--method", "wanda", "--label", f"n={i}") for i in range(3)]
    for name in names:
        server.cli.run("watch", name).expect(0)
    before = [server.get(name) for name in names]
    client = Client(server.address)
    page = client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(page_size=1), timeout=HANG)
    client.close()
    server.kill()
    server.again()
    assert [server.get(name) for name in names] == before
    client = Client(server.address)
    rest = client.jobs.ListJobs(prune_service_pb2.ListJobsRequest(
        page_size=5, page_token=page.next_page_token), timeout=HANG)
    assert [job.name for job in rest.jobs] == names[1::-1], "page tokens stay valid"
    watch = client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(
        name=names[0], after_revision=before[0].revision), timeout=HANG)
    assert [event.job.state for event in watch] == [job_pb2.JOB_STATE_SUCCEEDED]
    with pytest.raises(grpc.RpcError) as raised:
        list(client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(
            name=names[0], after_revision=before[0].revision + 1), timeout=HANG))
    code, reason, _ = error_info(raised.value)
    assert (code, reason) == (grpc.StatusCode.OUT_OF_RANGE, "REVISION_UNKNOWN")
    assert server.metric("sparsefw_jobs_recovered_total") == 0
    client.close()


def test_the_state_folder_may_be_a_link(start_server, layer, folder):
    """systemd makes it one for a dynamic user."""
    (folder / "private").mkdir()
    (folder / "state").symlink_to("private")
    for _ in range(2):
        server = start_server("--state-dir", folder / "state")
        cli = Cli(server.address)
        cli.run(*layer.submit("--method", "wanda", "--keep-tensors")).expect(0)
        jobs = cli.run("list", "--json").expect(0).json()["jobs"]
        assert server.stop() == 0, server.log()
    assert len(jobs) == 2 and (folder / "private/sparsefw.db").exists()


def test_a_memory_store_forgets(restartable, layer):
    server = restartable("--store", "memory")
    job = detach(server.cli, layer, "--method", "wanda")
    server.cli.run("watch", job).expect(0)
    server.drain()
    server.again()
    assert server.cli.run("list", "--json").expect(0).json()["jobs"] == []
    assert not (server.state_dir / "sparsefw.db").exists()


# gRPC connects only while somebody polls: a client that slept between its attempts noticed a
# server that is back 5 to 10 s later.
def test_a_client_soon_notices_that_the_server_is_back(restartable, layer):
    server = restartable()
    # Four seconds where the server starts at once.
    submit = server.cli.start(*layer.submit(*ENDLESS, "--retry-for", f"{3.5 + 10 * server.start_seconds}s"))
    wait_until(lambda: server.metric("sparsefw_watchers") == 1, "watch is open")
    server.kill()
    time.sleep(1)
    server.again()
    wait_until(lambda: server.metric("sparsefw_watchers") == 1 or submit.poll() is not None, "watch is open again")
    for job in server.cli.run("list", "--json").expect(0).json()["jobs"]:
        server.cli.run("cancel", job["job"]).expect(0)
    finish(submit).expect(0)


# A watcher goes on over the restart and is told the end.
def test_attempts_are_limited(restartable, big_layer):
    server = restartable("--max-attempts", "1", "--checkpoint-period", "1h")
    job = detach(server.cli, big_layer, *QUIET)  # an attempt that stores progress does not count
    runs(server.cli, job)
    watcher = server.cli.start("watch", job, "--json")
    wait_until(lambda: server.metric("sparsefw_watchers") == 1, "watch is open")
    server.kill()
    server.again()
    done = finish(watcher)
    assert done.code != 0 and "--max-attempts" in done.err, done.err
    failed = server.get(job)
    assert failed.state == job_pb2.JOB_STATE_FAILED and failed.attempts == 1
    assert "ATTEMPTS_EXHAUSTED" in str(failed.error)
    assert server.metric("sparsefw_jobs_recovered_total") == 1
    assert "jobs_recovered" in server.server.log()


def test_a_deadline_goes_on_while_the_server_is_down(restartable, big_layer):
    server = restartable()
    running = detach(server.cli, big_layer, *ENDLESS)
    runs(server.cli, running)

    def killed_before_it(seconds):
        queued = detach(server.cli, big_layer, *ENDLESS, "--deadline", f"{seconds}s")
        server.kill()
        with server.database() as database:
            state = database.execute("SELECT state FROM jobs WHERE name = ?", (queued,)).fetchone()
        time.sleep(seconds)
        server.again()
        return state == (0,) and queued

    failed = server.get(in_time(killed_before_it, 1))
    assert failed.state == job_pb2.JOB_STATE_FAILED and "DEADLINE_EXCEEDED" in str(failed.error)


def test_a_drain_leaves_jobs_for_the_next_start(restartable, big_layer):
    server = restartable("--drain-grace", "1s")
    running = detach(server.cli, big_layer, *ENDLESS)
    runs(server.cli, running)
    queued = [detach(server.cli, big_layer, *ENDLESS) for _ in range(2)]
    client = Client(server.address)
    seen, errors = {}, {}

    def watch(name):
        seen[name] = []
        try:
            for event in client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(name=name)):
                seen[name].append(event.job.state)
        except grpc.RpcError as error:
            errors[name] = error_info(error)

    watchers = [threading.Thread(target=watch, args=(name,)) for name in (running, *queued)]
    for watcher in watchers:
        watcher.start()
    wait_until(lambda: all(seen.get(name) for name in (running, *queued)), "snapshots")
    server.drain()
    for watcher in watchers:
        watcher.join(HANG)
        assert not watcher.is_alive()
    for name in (running, *queued):
        code, reason, metadata = errors[name]
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert int(metadata["retry_delay_ms"]) > 0
        assert seen[name][-1] == job_pb2.JOB_STATE_QUEUED
    assert server.states() == {running: 0, queued[0]: 0, queued[1]: 0}
    client.close()


@needs_tensors
def test_a_killed_server_ends_its_jobs_with_the_same_mask(restartable, big_layer):
    server = restartable()
    server.cli.run(*big_layer.submit(*LONG, "--json")).expect(0)
    expected = big_layer.mask()
    big_layer.mask_file.unlink()
    attached = server.cli.start(*big_layer.submit(*LONG, "--json"))
    (job,) = wait_until(lambda: [one["job"] for one in server.cli.run(
        "list", "--state", "running", "--json").json()["jobs"]], "job is accepted")
    queued = detach(server.cli, big_layer, *LONG)
    runs(server.cli, job, 1000)
    for attempt in (2, 3):
        server.kill()
        server.again()
        runs(server.cli, job, 1000)
        assert server.get(job).attempts == attempt
    result = finish(attached).expect(0).json()
    assert (result["job"], result["state"]) == (job, "SUCCEEDED")
    assert (big_layer.mask() == expected).all()
    server.cli.run("watch", queued).expect(0)
    big_layer.mask_file.unlink()
    server.cli.run("fetch", queued, "--out", big_layer.mask_file).expect(0)
    assert (big_layer.mask() == expected).all()
    assert server.get(queued).attempts == 1


@needs_tensors
def test_clients_finish_over_an_orderly_restart_without_being_told(restartable, big_layer):
    server = restartable("--drain-grace", "0s")
    attached = server.cli.start(*big_layer.submit(*LONG, "--json"))
    (job,) = wait_until(lambda: [one["job"] for one in server.cli.run(
        "list", "--state", "running", "--json").json()["jobs"]], "job is accepted")
    queued = detach(server.cli, big_layer, *LONG)
    watching = server.cli.start("watch", queued, "--json")
    wait_until(lambda: server.metric("sparsefw_watchers") == 2, "watches are open")
    server.drain()
    server.again()
    assert finish(attached).expect(0).json()["state"] == "SUCCEEDED"
    finish(watching).expect(0)
    assert server.get(job).attempts == server.get(queued).attempts == 1


# ---- What does not run again.

def test_a_cancelled_job_does_not_run_again(start_server, big_layer):
    """Killed between the answer to the cancel and the end of the job."""
    server = start_server("--workers", "1", program=FAILPOINTS,
                          env={"SPARSEFW_FAILPOINTS": "job.end=kill@1"})
    cli = Cli(server.address)
    job = detach(cli, big_layer, *ENDLESS)
    queued = detach(cli, big_layer, *ENDLESS)
    runs(cli, job, 200)
    client = Client(server.address)
    answer = client.jobs.CancelJob.future(prune_service_pb2.CancelJobRequest(name=job), timeout=HANG)
    assert server.wait() == -signal.SIGKILL
    assert answer.exception(HANG) is None or answer.code() == grpc.StatusCode.UNAVAILABLE
    client.close()
    with sqlite3.connect(f"file:{server.state_dir}/sparsefw.db?mode=ro", uri=True) as database:
        assert dict(database.execute("SELECT name, state FROM jobs"))[job] == 1, "RUNNING"
    database.close()

    again = start_server("--workers", "1", "--state-dir", server.state_dir)
    client = Client(again.address)
    ended = client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=job), timeout=HANG)
    assert ended.state == job_pb2.JOB_STATE_CANCELLED and ended.attempts == 1
    assert not ended.HasField("error") and not ended.HasField("result")
    runs(Cli(again.address), queued)
    client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=queued), timeout=HANG)
    client.close()


def test_a_detached_job_that_is_killed_at_its_end_runs_again(start_server, layer):
    """It has brought its tensors along: they stay until the store knows of the end."""
    server = start_server(program=FAILPOINTS, env={"SPARSEFW_FAILPOINTS": "job.end=kill@1"})
    client = Client(server.address)
    _, job = prune_stream(client, layer, detach=True, iterations=50)
    assert server.wait() == -signal.SIGKILL
    client.close()
    again = start_server("--state-dir", server.state_dir)
    client = Client(again.address)
    get = prune_service_pb2.GetJobRequest(name=job)
    ended = wait_until(lambda: [job for job in [client.jobs.GetJob(get, timeout=HANG)] if job.HasField("end_time")],
                       "the job ends")[0]
    assert ended.state == job_pb2.JOB_STATE_SUCCEEDED, ended.error
    tensors = lambda: client.tensors.ListTensors(tensor_service_pb2.ListTensorsRequest(), timeout=HANG).tensors
    wait_until(lambda: [tensor.name for tensor in tensors()] == [ended.result.mask], "only the mask is left")
    client.close()


def test_the_job_of_a_stream_ends_with_a_kill_unless_it_is_detached(restartable, big_layer):
    server = restartable("--workers", "2")
    client = Client(server.address)
    streams = [prune_stream(client, big_layer, detach) for detach in (False, True, False)]
    (_, bound), (_, detached), (_, waiting) = streams
    for job in (bound, detached):
        runs(server.cli, job)
    server.kill()
    client.close()
    server.again()
    for job in (bound, waiting):
        ended = server.get(job)
        assert ended.state == job_pb2.JOB_STATE_CANCELLED
        assert "STREAM_LOST" in str(ended.error) and "detach" in ended.error.message
    runs(server.cli, detached)
    status = server.cli.run("status", bound, "--json").expect(0).json()
    assert "stream" in status["error"]
    assert server.metric('sparsefw_jobs{state="cancelled"}') == 2
    server.cli.run("cancel", detached).expect(0)


# ---- Files that are no database of this server.

def refused(folder, *words, code=2):
    return refuses(code, ["sparsefw.db", *words], *loopback(folder, "--device", "cpu"))


def test_other_files_are_refused(folder):
    (folder / "state").mkdir()
    path = folder / "state/sparsefw.db"
    path.write_text("not a database " * 1000)
    refused(folder, "database of sparsefw-server", "(STORE_VERSION)")
    assert path.read_text().startswith("not a database")
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    database.close()
    refused(folder, "database of sparsefw-server", "(STORE_VERSION)")
    path.unlink()
    path.mkdir()
    refused(folder, "file that can be written", code=1)


def test_a_database_of_a_newer_server_is_refused(start_server, folder):
    server = start_server()
    assert server.stop() == 0
    (folder / "state").mkdir()
    path = folder / "state/sparsefw.db"
    shutil.copy(server.state_dir / "sparsefw.db", path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    refused(folder, "99", "newer server", "(STORE_VERSION)")
