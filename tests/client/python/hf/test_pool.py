"""What jobs of a run leave on a server, however they end."""

import pytest
import sparsefw
import torch
from layers import ENDLESS, Layer, running
from sparsefw import _core
from sparsefw.hf.layout import Matrix
from sparsefw.hf.pools.servers import Servers
from sparsefw.hf.pools.tasks import Task
from support.processes import HANG


@pytest.fixture
def client(start_server):
    with sparsefw.connect(start_server("--workers", "1").address) as client:
        yield client


def task_of(**options):
    return Task(Matrix("m", "", "weight", 24, 32), torch.tensor(Layer().weight), "key", {"sparsity": 0.5, **options})


def solve(client, task, on_event=lambda *_: None, way="solve"):
    """As a process that may come back."""
    with Servers([client], "one run", 1 << 20, lasting=True) as pool:
        pool.add_gram("key", torch.tensor(Layer().gram), 200)
        if way == "sweep":
            return [outcome for _, outcome in pool.sweep([task], [0.4, 0.5])]
        return list(pool.solve([task], on_event))


def kinds(client):
    return sorted(tensor.kind for tensor in client.list())


@pytest.mark.parametrize("way", ["solve", "sweep"])
def test_a_failed_job_is_removed(client, way):
    """The same call fails for the same reason, however often; then it may succeed."""
    layer = Layer()
    blocker = client.submit(layer.weight, layer.gram, sparsity=0.5, **ENDLESS)
    running(blocker)
    for _ in range(4):
        with pytest.raises(sparsefw.DeadlineExceeded, match="m: the deadline"):
            solve(client, task_of(method="wanda", deadline=0.1), way=way)
        assert [job.name for job in client.jobs()] == [blocker.name]
        assert kinds(client) == ["gram", "gram", "weight"]  # the blocker's, and the run's Gram matrix
    blocker.abandon()
    blocker.wait()
    assert len(solve(client, task_of(method="wanda", deadline=HANG), way=way)) == 1


def test_a_job_that_somebody_cancels_is_no_finished_matrix(client):
    def cancel(_, event):
        if event.progress is not None and event.progress.iteration:
            client.job(event.message.job.name).cancel()

    for _ in range(2):
        with pytest.raises(sparsefw.Cancelled, match="m: jobs/.* was cancelled: its mask so far"):
            solve(client, task_of(**ENDLESS), cancel)
        assert client.jobs() == []
        assert kinds(client) == ["gram"]


def test_a_result_that_did_not_arrive_is_fetched_by_the_next_call(client, monkeypatch):
    fetch, jobs = _core.Core._fetch, []

    async def lost(self, job, result):
        raise sparsefw.Unavailable("lost", code=None, reason="UNREACHABLE")

    def note(_, event):
        jobs.append(event.message.job.name)

    monkeypatch.setattr(_core.Core, "_fetch", lost)
    with pytest.raises(sparsefw.Unavailable):
        solve(client, task_of(), note)
    assert "weight" in kinds(client)
    monkeypatch.setattr(_core.Core, "_fetch", fetch)
    assert len(solve(client, task_of(), note)) == 1
    assert len(set(jobs)) == 1
    assert client.jobs() == []
    assert kinds(client) == []


def test_a_result_that_is_gone_is_made_anew(client):
    """Somebody removed the mask, not the job."""
    def remove(_, event):
        if event.ended:
            client.delete(client.job(event.message.job.name).message.result.mask)

    with pytest.raises(sparsefw.NotFound):
        solve(client, task_of(), remove)
    assert len(solve(client, task_of())) == 1


def test_a_request_that_is_another_jobs_leaves_no_weight(client):
    layer = Layer()
    with Servers([client], "one run", 1 << 20, lasting=True) as pool:
        pool.add_gram("key", torch.tensor(layer.gram), 200)
        request = pool._request(task_of(), (0, 24))
        other = client.submit(layer.weight, layer.gram, sparsity=0.25, request_id=f"{request}/1").wait()
        assert len(list(pool.solve([task_of()], lambda *_: None))) == 1
        assert [job.name for job in client.jobs()] == [other.name]
        assert kinds(client) == ["gram", "mask"]
