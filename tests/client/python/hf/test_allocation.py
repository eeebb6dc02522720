"""How the sparsity is divided among the matrices."""

import itertools
import math
import random
import re

import numpy as np
import pytest
import sparsefw
import tiny
import torch
from sparsefw.hf import allocate, prune_model
from sparsefw.hf.calibration import grams
from sparsefw.hf.calibration.capture import Call
from sparsefw.hf.calibration.outliers import share_of_outliers
from sparsefw.hf.calibration.step import LocalStep
from sparsefw.hf.layout import Matrix
from support import reference


def prune(model, server, **options):
    options = {"sparsity": 0.5, "method": "wanda", "data": tiny.tokens(), "progress": False, **options}
    return prune_model(model, server=server, **options)


def test_sparsity_by_name(client):
    model = tiny.make("llama")
    report = prune(model, client, sparsity=0.5, allocation={r"down_proj": 0.25, r"layers\.1\.mlp": 0.75})
    for row in report.layers:
        wanted = 0.25 if "down_proj" in row["name"] else 0.75 if "layers.1.mlp" in row["name"] else 0.5
        reference.check_counts((tiny.matrix(model, row["name"]) != 0).numpy(), "per-row", wanted)
    with pytest.raises(sparsefw.InvalidArgument, match="matches no matrix"):
        prune(tiny.make("llama"), client, allocation={"w_proj": 0.5})
    with pytest.raises(sparsefw.InvalidArgument, match=r'"\(proj" is no regular expression'):
        prune(tiny.make("llama"), client, allocation={"(proj": 0.5})
    with pytest.raises(sparsefw.InvalidArgument, match="no sparsity is given"):
        prune(tiny.make("llama"), client, sparsity=None, allocation={"down_proj": 0.5})
    with pytest.raises(sparsefw.InvalidArgument, match="fixes the sparsity"):
        prune(tiny.make("llama"), client, sparsity=None, pattern="2:4", allocation="loss-curve")


@pytest.mark.parametrize("value", [60, -0.1, math.nan, "half", True, None])
def test_a_sparsity_that_no_job_takes_is_refused_at_once(folder, value):
    """Not when its block comes: by then the state would be that of a run with this value."""
    options = {"state_dir": folder / "state", "server": "127.0.0.1:9"}  # there is no server
    rules = {r"layers\.1\.": value, "": 0.5}
    words = rf'the rule "layers\.1\." of allocation needs a sparsity in [0, 1]; got {value!r}'
    with pytest.raises(sparsefw.InvalidArgument, match=re.escape(words)):
        prune(tiny.make("llama"), allocation=rules, **options)
    words = re.escape(f"sparsity must be a number in [0, 1]; got {value!r}")
    with pytest.raises(sparsefw.InvalidArgument, match=words if value is not None else "no sparsity is given"):
        prune(tiny.make("llama"), sparsity=value, allocation={r"layers\.0\.": 0.5}, **options)
    assert not (folder / "state").exists()


def test_the_split_of_the_budget_is_the_best_one():
    """Against every split on a grid; the curves are convex."""
    generator = random.Random(4)
    points = [0.3, 0.4, 0.5, 0.6, 0.7]
    for _ in range(20):
        sizes = {name: generator.choice([100, 200, 400]) for name in "abc"}
        curves = {}
        for name in sizes:
            steps = sorted(generator.random() for _ in points)
            curves[name] = [{"sparsity": p, "loss": sum(steps[: i + 1])} for i, p in enumerate(points)]
        chosen = allocate.by_loss(sizes, curves, 0.5)
        total = sum(sizes.values())
        assert sum(sizes[n] * chosen[n] for n in sizes) == pytest.approx(0.5 * total)

        def cost(split, curves=curves):
            return sum(
                np.interp(split[n], points, [point["loss"] for point in curves[n]]) for n in curves)

        best = min(
            (cost(dict(zip(sizes, values, strict=True)))
             for values in itertools.product(np.linspace(0.3, 0.7, 41), repeat=3)
             if abs(sum(s * v for s, v in zip(sizes.values(), values, strict=True)) - 0.5 * total) < 1e-6),
            default=np.inf)
        assert cost(chosen) <= best + 1e-9


def test_noise_does_not_break_the_split():
    curve = [{"sparsity": s, "loss": v} for s, v in [(0.4, 0.1), (0.5, 0.3), (0.6, 0.2), (0.7, 0.6)]]
    chosen = allocate.by_loss({"a": 10, "b": 10}, {"a": curve, "b": curve}, 0.55)
    assert sum(chosen.values()) == pytest.approx(1.1)


@pytest.mark.parametrize("sparsity", [0.991, 1])
def test_loss_curves_end_at_a_sparsity(sparsity):
    """The mean could not be more; nothing is read."""
    words = f'sparsity must be at most 0.99 with allocation="loss-curve"; got {sparsity}'
    with pytest.raises(sparsefw.InvalidArgument, match=re.escape(words)):
        prune("none", "127.0.0.1:9", sparsity=sparsity, allocation="loss-curve")
    allocate.check("loss-curve", "per-row", 0.99)
    allocate.check("owl", "per-row", 1)


def test_allocation_by_loss_curves(client, folder):
    model = tiny.make("llama")
    with torch.no_grad():  # of this one nothing matters but a few columns
        model.model.layers[0].mlp.up_proj.weight[:, 8:] *= 1e-3
    again = tiny.make_like(model)
    options = {"allocation": "loss-curve", "allocation_bound": 0.2, "state_dir": folder / "state"}
    report = prune(model, client, **options)
    shares = {row["name"]: row["sparsity"] for row in report.layers}
    assert report.sparsity == pytest.approx(0.5, abs=0.02)  # rows are cut to whole weights
    assert min(shares.values()) >= 0.3 - 0.02
    assert max(shares.values()) <= 0.7 + 0.02
    assert shares["model.layers.0.mlp.up_proj.weight"] > 0.65
    curve = report.curves["model.layers.0.mlp.up_proj.weight"]
    assert [point["sparsity"] for point in curve] == [0.3, 0.38, 0.44, 0.5, 0.56, 0.62, 0.7]
    assert all(one["loss"] <= two["loss"] for one, two in itertools.pairwise(curve))
    (folder / "state/block-0001.json").unlink()
    (folder / "state/curve-0001.json").unlink()
    second = prune(again, client, **options)
    assert second.curves == report.curves
    assert tiny.same(model, again)


def with_outliers(family="llama"):
    """The second block has some scores far above the others."""
    model = tiny.make(family)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[:, 3] *= 100
    return model


def counted(model):
    """The share of outliers of each block, from the inputs that the model itself gives its matrices."""
    squares = {}

    def add(module, args):
        rows = args[0].detach().reshape(-1, args[0].shape[-1]).double()
        squares[module] = squares.get(module, 0) + (rows**2).sum(0)

    linears = [
        [module for module in block.modules() if isinstance(module, torch.nn.Linear)]
        for block in model.model.layers]
    hooks = [module.register_forward_pre_hook(add) for block in linears for module in block]
    with torch.no_grad():
        for tokens in tiny.tokens():
            model(input_ids=tokens.reshape(1, -1))
    for hook in hooks:
        hook.remove()
    shares = []
    for block in linears:
        scores = torch.cat([(m.weight.detach().double().abs() * squares[m].sqrt()).flatten() for m in block])
        shares.append((scores > 5 * scores.mean()).double().mean().item())
    return shares


def test_blocks_with_outliers_keep_more(client, folder, monkeypatch):
    monkeypatch.setattr(grams, "_ROWS", 7)
    model = with_outliers()
    wanted = counted(model)
    again, third = tiny.make_like(model), tiny.make_like(model)
    options = {"allocation": "owl", "method": "magnitude", "state_dir": folder / "state", "sparsity": 0.6}
    report = prune(model, client, **options)
    assert list(report.outliers.values()) == pytest.approx(wanted, rel=1e-12)
    assert wanted[0] < wanted[1]
    for row in report.layers:
        share = 0.68 if ".layers.0." in row["name"] else 0.52
        rows, inputs = row["shape"]
        assert row["kept"] == rows * (inputs - int(share * inputs))
    assert report.curves is None
    # What is missing is measured again, on the dense model.
    (folder / "state/block-0001.json").unlink()
    (folder / "state/outliers-0001.json").unlink()
    second = prune(again, client, **options)
    assert second.outliers == report.outliers
    assert tiny.same(model, again)
    assert prune(third, client, **options).outliers == report.outliers  # all is in the state


def test_the_bound_of_outliers(client):
    report = prune(with_outliers(), client, allocation="owl", allocation_bound=0.02, method="magnitude")
    assert report.settings["allocation_bound"] == 0.02
    shares = [row["sparsity"] for row in report.layers if "q_proj" in row["name"]]
    inputs = tiny.make("llama").config.hidden_size
    assert shares == [int(0.52 * inputs) / inputs, int(0.48 * inputs) / inputs]


def test_experts_that_no_token_reached_have_no_outliers(client):
    # The same token everywhere: two of four experts get it.
    report = prune(tiny.make("mixtral"), client, allocation="owl", data=torch.full((2, 8), 7))
    assert [row for row in report.layers if row["note"]]
    assert all(0 <= share < 0.5 for share in report.outliers.values())
    assert report.sparsity == pytest.approx(0.5, abs=0.02)


def test_no_block_behind_the_last_one_is_run(client, monkeypatch):
    runs = []
    for name in ("squares", "advance"):
        def seen(self, *arguments, name=name, real=getattr(LocalStep, name)):
            runs.append((name, self.layout.index))
            return real(self, *arguments)

        monkeypatch.setattr(LocalStep, name, seen)
    report = prune(tiny.make("llama"), client, allocation="owl", ignore=["lm_head", r"layers\.1\."])
    assert runs == [("squares", 0)]
    assert list(report.outliers) == ["model.layers.0"]


def test_inputs_that_are_not_finite_are_refused_by_the_block(client):
    model = tiny.make("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] = float("inf")
    with pytest.raises(sparsefw.InvalidArgument, match=r"model\.layers\.1: weights and inputs must be") as held:
        prune(model, client, allocation="owl")
    assert held.value.reason == "NON_FINITE"


def test_a_layer_that_gets_no_token_has_no_squares():
    class Unused(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, hidden):
            self.unused(hidden[:0])
            return self.used(hidden)

    groups = [
        grams.Group(name, name, 4, (Matrix(f"{name}.weight", name, "weight", 4, 4),), True)
        for name in ("used", "unused")]
    hidden = torch.arange(8.0).reshape(2, 4)
    found = grams.sum_squares(Unused(), groups, [hidden], [Call((), {})], [0], lambda *_: None)
    assert {name: value.tolist() for name, value in found.items()} == {"used": [16.0, 26.0, 40.0, 58.0]}


def test_a_candidate_of_tune_may_divide_by_outliers(client):
    model = with_outliers()
    candidates = [{"allocation": "owl"}, {"allocation": "owl", "allocation_bound": 0.02}]
    report = prune(model, client, tune=candidates, method="magnitude", data=tiny.tokens(8, 32))
    wide, narrow = report.tuning["candidates"]
    assert wide["options"] == {"allocation": "owl"}
    assert wide["losses"] != narrow["losses"]  # others were pruned
    assert set(report.outliers) == {"model.layers.0", "model.layers.1"}


def test_outliers_are_those_of_the_whole_block():
    """Small scores of one matrix make outliers of the other's. Each matrix by itself has none."""
    small, large = (torch.ones(9, 10), torch.ones(10)), (torch.full((1, 10), 10.0), torch.full((10,), 100.0))
    assert share_of_outliers([small, large]) == pytest.approx(0.1)
    assert share_of_outliers([small]) == share_of_outliers([large]) == share_of_outliers([]) == 0
    assert share_of_outliers([(torch.full((1, 10), math.nan), torch.ones(10))]) is None


def test_sparsities_by_outliers_have_the_mean_that_was_asked_for():
    sizes = {"a": 100, "b": 300, "c": 100}
    found = allocate.by_outliers(sizes, {"a": 0.0, "b": 0.01, "c": 0.02}, 0.6, 0.08)
    assert found == pytest.approx({"a": 0.68, "b": 0.6, "c": 0.52})
    found = allocate.by_outliers(sizes, {"a": 0.02, "b": 0.0, "c": 0.0}, 0.6, 0.1)
    assert sum(sizes[name] * found[name] for name in sizes) == pytest.approx(0.6 * 500)
    assert found["b"] - found["a"] == pytest.approx(0.2)
    assert allocate.by_outliers(sizes, dict.fromkeys(sizes, 0.01), 0.6, 0.08) == dict.fromkeys(sizes, 0.6)
    generator = random.Random(5)
    for _ in range(2000):  # never below 0 by a rounding
        shares = {name: generator.random() for name in sizes}
        found = allocate.by_outliers(sizes, shares, generator.uniform(0.001, 0.1), 0.08)
        assert min(found.values()) >= 0
    for sparsity in (0.0, 0.02, 0.97, 0.99, 1.0):  # narrower, rather than outside of what can be removed
        found = allocate.by_outliers(sizes, {"a": 0.0, "b": 0.01, "c": 0.02}, sparsity, 0.08)
        assert 0 <= min(found.values()) and max(found.values()) <= max(0.99, sparsity)
        assert sum(sizes[name] * found[name] for name in sizes) == pytest.approx(sparsity * 500)
