"""Several servers, Gram matrices summed by a server."""


import pytest
import sparsefw
import tiny
import torch
from sparsefw.hf import prune_model
from sparsefw.hf.layout import Matrix
from sparsefw.hf.pools.servers import Servers
from sparsefw.hf.pools.tasks import Task, parts_of


def prune(model, server, **options):
    options = {"sparsity": 0.5, "method": "wanda", "data": tiny.tokens(), "progress": False, **options}
    return prune_model(model, server=server, **options)


def test_two_servers_share_the_work(start_server):
    servers = [start_server().address for _ in range(2)]
    alone, together, split = (tiny.make("llama") for _ in range(3))
    first = prune(alone, servers[0])
    prune(together, servers)
    third = prune(split, servers, split_above=512)
    assert tiny.same(alone, together)
    assert tiny.same(alone, split)  # Wanda's rows know nothing of each other
    assert {row["parts"] for row in first.layers} == {1}
    assert {row["parts"] for row in third.layers} == {1, 2, 3}
    for one, two in zip(first.layers, third.layers, strict=True):
        assert one["kept"] == two["kept"]
        for name in ("full", "final", "lower_bound"):
            assert one["losses"][name] == pytest.approx(two["losses"][name], rel=1e-9)
    for address in servers:
        with sparsefw.connect(address) as client:
            assert client.list() == []  # nothing is left behind
            assert client.jobs() == []


def test_losses_with_g_itself_are_reported_whatever_the_split(start_server):
    servers = [start_server().address for _ in range(2)]
    plain = prune(tiny.make("llama"), servers[0], propagate=False)
    alone = prune(tiny.make("llama"), servers[0], propagate=False, shrinkage=0.25)
    parts = prune(tiny.make("llama"), servers, propagate=False, shrinkage=0.25, split_above=512)
    for one, two, other in zip(alone.layers, parts.layers, plain.layers, strict=True):
        assert "unshrunk" not in other["losses"]
        assert one["losses"]["full"] != pytest.approx(other["losses"]["full"], rel=1e-3)
        for name in ("full", "warm_start", "result"):
            assert one["losses"]["unshrunk"][name] == pytest.approx(
                two["losses"]["unshrunk"][name], rel=1e-9)
    # Wanda's mask is the same, and so is its loss with G.
    for one, other in zip(alone.rows(), plain.rows(), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert one["warm_start"] == pytest.approx(other["warm_start"], rel=1e-4)


def test_requests_are_named_by_their_content(client):
    """After a crash the same work is found, and no other in its place."""
    def matrix(scale):
        return torch.eye(8) * scale

    def solve(pool, scale):
        pool.add_gram("key", matrix(scale), 4)
        task = Task(Matrix("m", "", "weight", 4, 8), torch.ones(4, 8), "key", {"method": "wanda", "sparsity": 0.5})
        (solved,) = pool.solve([task], lambda *_: None)
        return solved.record["losses"]["full"]

    names = []
    for scale in (2.0, 2.0, 3.0):
        pool = Servers([client], "run-of-this-test", 1 << 20, lasting=True)  # as if its process had been killed
        assert solve(pool, scale) == 32 * scale
        names.append(pool._grams["key"][0].name)
    assert names[0] == names[1] != names[2]
    pool.drop_grams()
    # What somebody has removed meanwhile is sent again.
    assert solve(Servers([client], "run-of-this-test", 1 << 20, lasting=True), 3.0) == 96


def test_losses_along_the_iterations(start_server):
    """The last point is what the job ended with; ranges of rows on two servers have none."""
    options = {"method": "sparsefw", "iterations": 40, "report_every": 10, "trace": True}
    first = start_server().address
    report = prune(tiny.make("llama"), first, **options)
    for layer in report.layers:
        at = [point["iteration"] for point in layer["trace"]]
        assert at == sorted(set(at)) and at[-1] == 40 and at[0] >= 1
        last = layer["trace"][-1]
        assert last["relaxed_loss"] == pytest.approx(layer["losses"]["relaxed"], rel=1e-3)
        assert last["rounded_loss"] == pytest.approx(layer["losses"]["rounded"], rel=1e-3)
        assert last["threshold_residual"] >= 0
    split = prune(tiny.make("llama"), [first, start_server().address], split_above=512, **options)
    assert all(("trace" in layer) == (layer["parts"] == 1) for layer in split.layers)
    assert all("trace" not in layer for layer in prune(tiny.make("llama"), first, method="sparsefw").layers)


def test_which_rows_are_parts():
    """The shape decides, whatever there is to run them."""
    def parts(split_above, pattern="per-row", rows=10):
        return parts_of(Task(Matrix("m", "", "weight", rows, 8), None, "", {"pattern": pattern}), split_above)

    assert parts(80) == [(0, 10)]
    assert parts(79) == [(0, 5), (5, 10)]
    assert parts(30, "2:4") == [(0, 3), (3, 6), (6, 10)]
    assert parts(1) == [(row, row + 1) for row in range(10)]
    assert parts(1, "unstructured") == [(0, 10)]


@pytest.mark.parametrize("family", ["gpt2", "mixtral"])
def test_gram_matrices_of_the_server(client, family):
    here, there = tiny.make(family), tiny.make(family)
    first = prune(here, client, gram="client")
    second = prune(there, client, gram="server")
    for one, two in zip(first.layers, second.layers, strict=True):
        assert one["tokens"] == two["tokens"]
        assert one["losses"]["full"] == pytest.approx(two["losses"]["full"], rel=1e-4)


def test_few_tokens_are_sent_instead_of_their_sum(client, monkeypatch):
    from sparsefw.hf.pools import servers

    calls = []
    for name in ("add_gram", "stream_gram"):
        original = getattr(servers.Servers, name)
        monkeypatch.setattr(
            servers.Servers, name,
            lambda *args, name=name, original=original: calls.append(name) or original(*args))
    prune(tiny.make("llama"), client, data=tiny.tokens(1, 8))
    assert set(calls) == {"stream_gram"}
    calls.clear()
    prune(tiny.make("llama"), client, data=tiny.tokens(6, 24))
    assert set(calls) == {"add_gram"}


def test_an_error_names_the_matrix(start_server):
    address = start_server().address
    model = tiny.make("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight[3, 4] = float("nan")
    with pytest.raises(sparsefw.InvalidArgument, match=r"layers\.1\.self_attn\.o_proj\.weight") as raised:
        prune(model, address)
    assert raised.value.reason == "NON_FINITE"
    with sparsefw.connect(address) as client:  # nobody can come back for it
        assert client.jobs(["QUEUED", "RUNNING"]) == []
        assert [tensor.kind for tensor in client.list() if tensor.kind == "gram"] == []


def test_new_weights_that_a_server_did_not_keep_are_an_error(client, monkeypatch):
    """Not masks of the old weights beside losses of the new ones."""
    from sparsefw import spec

    monkeypatch.setattr(spec, "updates_weights", lambda *_: False)
    with pytest.raises(sparsefw.FailedPrecondition, match=r"weight: jobs/\S+ updated the weights"):
        prune(tiny.make("llama"), client, method="sparsegpt")


@pytest.mark.parametrize("method", ["SparseGPT", "Alps"])
def test_new_weights_are_written_however_a_method_is_spelled(client, method):
    old, one, other = tiny.make("llama"), tiny.make("llama"), tiny.make("llama")
    prune(one, client, method=method)
    prune(other, client, method=method.lower())
    assert tiny.same(one, other)
    weight, new = (model.model.layers[0].mlp.up_proj.weight for model in (old, one))
    assert not torch.equal(new, weight * (new != 0))
