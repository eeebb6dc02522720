"""sparsefw.torch.prune_linear with a request id: the same call once more."""

import pytest
import sparsefw
import torch
from layers import ENDLESS
from sparsefw import _core
from sparsefw.torch import prune_linear
from test_torch import inputs

CALL = {"sparsity": 0.6, "request_id": "layer 7"}


def layer_of(width=32):
    torch.manual_seed(4)
    return torch.nn.Linear(width, 24)


def left(client):
    return [job.name for job in client.jobs()], [tensor.name for tensor in client.list()]


@pytest.fixture
def client(start_server):
    with sparsefw.connect(start_server().address) as client:
        yield client
        assert left(client) == ([], [])


def interrupt(event):
    if event.progress is not None and event.progress.iteration:
        raise KeyboardInterrupt


def test_the_same_call_after_a_success(client):
    one, two = layer_of(), layer_of()
    first = prune_linear(one, inputs(), client=client, **CALL)
    assert left(client) == ([], [])
    second = prune_linear(two, inputs(), client=client, **CALL)
    assert torch.equal(one.weight, two.weight)
    assert first.losses.final == second.losses.final
    prune_linear(two, inputs(), client=client, **{**CALL, "sparsity": 0.7})  # the id is free


def test_the_same_call_after_an_interrupt_goes_on(client):
    layer, options = layer_of(), {"iterations": 30_000, "report_every": 100, **CALL}
    with pytest.raises(KeyboardInterrupt):
        prune_linear(layer, inputs(), client=client, progress=interrupt, **options)
    (job,) = client.jobs()
    with pytest.raises(sparsefw.InvalidArgument) as other:
        prune_linear(layer, inputs(), client=client, **{**options, "sparsity": 0.5})
    assert other.value.reason == "REQUEST_ID_REUSED"
    result = prune_linear(layer, inputs(), client=client, **options)
    assert result.job == job.name
    assert result.iterations == 30_000
    assert torch.equal(layer.weight != 0, result.torch_mask())


def test_the_same_call_after_a_lost_result_goes_on(client, monkeypatch):
    fetch = _core.Core._fetch

    async def lost(self, job, result):
        raise sparsefw.Unavailable("lost", code=None, reason="UNREACHABLE")

    monkeypatch.setattr(_core.Core, "_fetch", lost)
    with pytest.raises(sparsefw.Unavailable):
        prune_linear(layer_of(), inputs(), client=client, **CALL)
    (job,) = client.jobs()
    monkeypatch.setattr(_core.Core, "_fetch", fetch)
    assert prune_linear(layer_of(), inputs(), client=client, **CALL).job == job.name


def test_the_same_call_after_a_refusal_or_a_failure_begins_anew(client):
    def cancel(event):
        if event.progress is not None:
            client.job(event.message.job.name).cancel()

    broken = layer_of()
    with torch.no_grad():
        broken.weight[3, 4] = float("nan")
    with pytest.raises(sparsefw.InvalidArgument, match="weight"):
        prune_linear(broken, inputs(), client=client, **CALL)
    assert left(client) == ([], [])
    with pytest.raises(sparsefw.DeadlineExceeded):
        prune_linear(layer_of(), inputs(), client=client, deadline=1e-6, **CALL)
    assert left(client) == ([], [])
    # Cancelled by somebody, it has its best mask so far.
    result = prune_linear(layer_of(), inputs(), client=client, progress=cancel, **CALL, **ENDLESS)
    assert result.state == "CANCELLED"
    prune_linear(layer_of(), inputs(), client=client, **CALL)


def test_a_cancelled_jobs_mask_is_still_fetched_after_a_lost_connection(client, monkeypatch):
    def cancel(event):
        if event.progress is not None and event.progress.iteration:
            client.job(event.message.job.name).cancel()

    fetch = _core.Core._fetch

    async def lost(self, job, result):
        raise sparsefw.Unavailable("lost", code=None, reason="UNREACHABLE")

    monkeypatch.setattr(_core.Core, "_fetch", lost)
    with pytest.raises(sparsefw.Unavailable):
        prune_linear(layer_of(), inputs(), client=client, progress=cancel, **CALL, **ENDLESS)
    (job,) = client.jobs()
    monkeypatch.setattr(_core.Core, "_fetch", fetch)
    result = prune_linear(layer_of(), inputs(), client=client, **CALL, **ENDLESS)
    assert (result.job, result.state) == (job.name, "CANCELLED")


def test_an_id_that_is_no_text_is_refused_before_anything_is_uploaded(client):
    with pytest.raises(sparsefw.InvalidArgument, match="request_id must be a text; got 7"):
        prune_linear(layer_of(), inputs(), client=client, sparsity=0.6, request_id=7)
