"""One server, two servers, a Ray cluster: the same behaviour, and the same bits."""

import numpy as np
import pytest
import sparsefw
import tiny
import torch
from forms import long
from sparsefw.hf import Ray, prune_model, tune
from support import reference

KINDS = ["server", "servers", "ray"]


@pytest.fixture
def place(request, start_server):
    """What `server` is."""
    if request.param == "ray":
        request.getfixturevalue("nodes")
        return Ray(cpus=1)
    addresses = [start_server().address for _ in range(KINDS.index(request.param) + 1)]
    return addresses if len(addresses) > 1 else addresses[0]


every = pytest.mark.parametrize("place", KINDS, indirect=True)


def prune(model, place, data=None, **options):
    options = {"sparsity": 0.5, "gram": "client", "progress": False, **options}
    return prune_model(model, data=tiny.tokens() if data is None else data, server=place, **options)


def weights(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


CASES = {
    "rows are parts": ("llama", {"split_above": 512, "iterations": 40}),
    "new weights, refined": ("llama", {"method": "sparsegpt", "refine_blocks": {"epochs": 2}}),
    "experts": ("mixtral", {"method": "wanda", "sparsity": None, "pattern": "2:4"}),
    "Conv1D, dense inputs": ("gpt2", {"method": "wanda", "propagate": False}),
    "loss curves": ("llama", {"method": "wanda", "allocation": "loss-curve", "allocation_bound": 0.2}),
    "outliers": ("llama", {"method": "wanda", "allocation": "owl"}),
    "distilled": ("llama", {"method": "wanda", "distill": {"epochs": 1}}),
    "tuned": ("llama", {"method": "wanda", "tune": [{}, {"method": "magnitude"}]}),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one server makes of each case."""
    from support.processes import Server

    server = Server(tmp_path_factory.mktemp("server"))
    found = {}
    try:
        for name, (family, options) in CASES.items():
            model = tiny.make(family)
            report = prune(model, server.address, **options)
            found[name] = weights(model), report
    finally:
        server.close()
    return found


SHORT = ("rows are parts", "new weights, refined")


@pytest.mark.parametrize(("place", "case"), [
    pytest.param(kind, case, marks=[long] if kind == "ray" and case not in SHORT else [])
    for kind in KINDS[1:] for case in CASES], indirect=["place"])
def test_every_place_gives_the_same_bits(place, case, expected):
    family, options = CASES[case]
    model = tiny.make(family)
    report = prune(model, place, **options)
    assert same(weights(model), expected[case][0])
    for one, other in zip(report.layers, expected[case][1].layers, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    if case == "outliers" and report.cluster:
        assert any("squares" in node["calibration"] for node in report.cluster["nodes"].values())
    if case == "tuned":
        assert report.tuning["chosen"] == expected[case][1].tuning["chosen"]
    for row in report.layers if "sparsity" not in options and "allocation" not in options else ():
        reference.check_counts((tiny.matrix(model, row["name"]) != 0).numpy(), "per-row", 0.5)


@every
def test_an_error_names_the_matrix_and_leaves_the_place_usable(place):
    model = tiny.make("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight[3, 4] = float("nan")
    with pytest.raises(sparsefw.InvalidArgument, match=r"layers\.1\.self_attn\.o_proj\.weight") as raised:
        prune(model, place)
    assert raised.value.reason == "NON_FINITE"
    assert prune(tiny.make("llama"), place, method="wanda").sparsity == pytest.approx(0.5)


@every
def test_losses_along_the_iterations(place):
    options = {"method": "sparsefw", "iterations": 40, "report_every": 10, "trace": True, "split_above": 1200}
    report = prune(tiny.make("llama"), place, **options)
    assert {layer["parts"] for layer in report.layers} == {1, 2}
    for layer in report.layers:
        if layer["parts"] == 1:
            assert [point["iteration"] for point in layer["trace"]][-1] == 40
        else:
            assert "trace" not in layer


@every
def test_a_run_goes_on_at_another_place(place, expected, folder, start_server, monkeypatch):
    """A folder of one kind of place is continued by another one; finished blocks are not done again."""
    from sparsefw.hf import run

    options = {**CASES["rows are parts"][1], "state_dir": folder / "state"}
    model = tiny.make("llama")
    solve = run.Run._solve

    def stops(self, pool, step, *rest):
        if step.layout.index == 1:
            raise KeyboardInterrupt
        return solve(self, pool, step, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.Run, "_solve", stops)
        prune(model, place, **options)
    first = (folder / "state/block-0000.json").stat().st_mtime_ns
    model = tiny.make("llama")
    prune(model, start_server().address, **options)
    assert same(weights(model), expected["rows are parts"][0])
    assert (folder / "state/block-0000.json").stat().st_mtime_ns == first


@long
def test_strips_of_gram_matrices_change_no_bit(nodes, expected, monkeypatch):
    from sparsefw.hf.cluster import tasks

    monkeypatch.setattr(tasks, "_STRIP_BYTES", 1)
    assert len(tasks.strips_of(32)) == 16
    model = tiny.make("llama")
    prune(model, Ray(cpus=1), **CASES["rows are parts"][1])
    assert same(weights(model), expected["rows are parts"][0])


@long
def test_candidates_share_gram_matrices_on_a_cluster(nodes, client):
    arguments = {"data": tiny.tokens(8), "sparsity": 0.5, "gram": "client", "progress": False, "blocks": 1}
    candidates = [{"method": "wanda"}, {"method": "magnitude"}]
    here = tune(tiny.make("llama"), server=client, candidates=candidates, **arguments)
    there = tune(tiny.make("llama"), server=Ray(cpus=1), candidates=candidates, **arguments)
    assert here.chosen == there.chosen
    np.testing.assert_array_equal(
        [one["losses"] for one in here.candidates], [one["losses"] for one in there.candidates])


def test_wrong_settings_of_a_cluster_are_named(client):
    for options, text in [
        ({"server": "ray", "gram": "server"}, 'gram="server" needs a server'),
        ({"server": ["ray", "auto"]}, 'server="auto" cannot be one of several'),
        ({"server": ["127.0.0.1:1", "ray"]}, 'server="ray" cannot be one of several'),
        ({"server": client, "split_above": 0}, "split_above must be a whole number of weights of at least 1; got 0"),
    ]:
        with pytest.raises(sparsefw.InvalidArgument, match=text):
            prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, progress=False, **options)
    for settings, text in [
        ({"cpus": 0}, "cpus of Ray must be a whole number from 1 to 4096; got 0"),
        ({"gpus": 2}, "gpus of Ray must be a whole number from 0 to 1; got 2"),
        ({"workers": 1.5}, "workers of Ray must be a whole number from 1 to 65536; got 1.5"),
        ({"max_attempts": None}, "max_attempts of Ray must be a whole number from 1 to 1000; got None"),
        ({"address": "ray://head:10001"}, "must be HOST:PORT of a cluster that this machine belongs to"),
        ({"address": ""}, "address of Ray must be a text"),
    ]:
        with pytest.raises(sparsefw.InvalidArgument, match=text):
            Ray(**settings)


def test_a_missing_package_is_named(monkeypatch):
    from sparsefw.hf.cluster import session

    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(sparsefw.InvalidArgument, match=r"ray is not installed: pip install 'sparsefw\[ray\]'"):
        session.load_ray()


def test_the_command_line_names_a_cluster(folder, capsys):
    from sparsefw import _cli

    (folder / "text.txt").write_text("text")
    for flags, text in [
        (["--server", "ray", "--server", "127.0.0.1:1"], "--server ray cannot be one of several"),
        (["--ray-cpus", "2"], "--ray-cpus needs --server ray"),
        (["--server", "ray", "--ray-gpus", "3"], "gpus of Ray must be a whole number from 0 to 1; got 3"),
    ]:
        arguments = ["prune-model", str(folder), "--data", str(folder / "text.txt"), "--out", str(folder / "out")]
        assert _cli.main([*arguments, "--sparsity", "0.5", *flags]) in (2, 3)
        assert text in capsys.readouterr().err
