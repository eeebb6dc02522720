"""The modifier of llm-compressor: what it prunes is what prune_model prunes."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import grpc
import llmcompressor
import oneshots
import pytest
import sparsefw
import tiny
import torch
import transformers
from llmcompressor.recipe import Recipe
from sparsefw.hf.pools import servers
from sparsefw.llmcompressor import SparseFWModifier
from sparsefw.llmcompressor.arguments import pattern_of
from sparsefw.llmcompressor.sums import Sums
from support.processes import BIN_DIR, HANG

PROGRAM = str(BIN_DIR / "sparsefw-server")


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", PROGRAM)


@pytest.fixture
def dense(folder):
    return oneshots.save(folder / "dense")


def differing(first, second):
    """Names of the parameters with other bits."""
    others = dict(second.named_parameters())
    return [name for name, value in first.named_parameters() if not torch.equal(value, others[name])]


SAME = [
    ({"sparsity": 0.6}, {"sparsity": 0.6, "preset": "balanced", "refine_blocks": False}),
    ({"sparsity": 0.6, "mask_structure": "per-row", "method": "wanda"}, {"sparsity": 0.6, "method": "wanda"}),
    ({"sparsity": 0.5, "mask_structure": "2:4", "preset": "fast"},
     {"pattern": "2:4", "preset": "fast", "refine_blocks": False}),
    # N:M removes N of M there, and keeps N of M here.
    ({"mask_structure": "1:4", "preset": "paper", "iterations": 50},
     {"pattern": "3:4", "preset": "paper", "iterations": 50}),
    ({"sparsity": 0.5, "mask_structure": "unstructured", "method": "sparsegpt"},
     {"sparsity": 0.5, "pattern": "unstructured", "method": "sparsegpt"}),
    ({"sparsity": 0.5, "alpha": 0.5, "iterations": 50, "swaps": True, "split_above": 600},
     {"sparsity": 0.5, "alpha": 0.5, "iterations": 50, "swaps": True, "split_above": 600}),
]


@pytest.mark.parametrize(("arguments", "options"), SAME)
def test_every_weight_is_that_of_prune_model(dense, arguments, options):
    model, modifier = oneshots.modified(dense, ignore=["re:.*lm_head"], **arguments)
    other, report = oneshots.pruned(dense, **options)
    assert len(report.layers) == 14
    assert differing(model, other) == []
    assert [row["losses"] for row in modifier.report.layers] == [row["losses"] for row in report.layers]
    assert [row["name"] for row in modifier.report.layers] == [row["name"] for row in report.layers]
    assert differing(model, oneshots.load(dense)) == [row["name"] for row in report.layers]


@pytest.mark.parametrize(("pipeline", "propagate"), [("sequential", True), ("basic", False)])
def test_other_pipelines(dense, pipeline, propagate):
    """The basic one runs the whole dense model once."""
    model, modifier = oneshots.load(dense), SparseFWModifier(sparsity=0.5, method="wanda")
    oneshots.oneshot(model, modifier, pipeline=pipeline)
    other, report = oneshots.pruned(dense, sparsity=0.5, method="wanda", propagate=propagate)
    assert len(modifier.report.layers) == 14
    assert differing(model, other) == []


@pytest.mark.parametrize(("structure", "removed", "group"), [("2:4", 2, 4), ("1:4", 1, 4), ("4:8", 4, 8)])
def test_n_of_m_are_removed(dense, structure, removed, group):
    model, modifier = oneshots.modified(dense, mask_structure=structure, method="wanda")
    for row in modifier.report.layers:
        zeros = model.get_parameter(row["name"]) == 0
        assert (zeros.reshape(-1, group).sum(1) == removed).all(), row["name"]
        assert row["kept"] == int((~zeros).sum())


def test_counts_are_exact(dense):
    model, modifier = oneshots.modified(dense, sparsity=0.6)
    for row in modifier.report.layers:
        rows, columns = row["shape"]
        zeros = (model.get_parameter(row["name"]) == 0).sum(1)
        kept = columns - zeros
        assert (kept == kept[0]).all() and int(kept.sum()) == row["kept"]
        assert abs(int(kept[0]) - 0.4 * columns) < 1
        assert row["tokens"] == oneshots.COUNT * oneshots.LENGTH
    text = str(modifier.report)
    assert "mlp.down_proj" in text and "lm_head.weight" in text


def test_the_saved_folder_is_a_plain_one(dense, folder):
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        "test_stage:\n  pruning_modifiers:\n    SparseFWModifier:\n      sparsity: 0.5\n"
        "      mask_structure: '2:4'\n      method: wanda\n      ignore: ['re:.*lm_head']\n")
    oneshots.oneshot(str(dense), str(recipe), output_dir=str(folder / "out"))
    config = json.loads((folder / "out/config.json").read_text())
    assert "sparsity_config" not in json.dumps(config) and "quantization_config" not in config
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "out", dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    other, report = oneshots.pruned(dense, pattern="2:4", method="wanda")
    assert differing(loaded, other) == []
    assert loaded(input_ids=tiny.tokens(1)).logits.isfinite().all()
    # The recipe that llm-compressor writes gives the same modifier.
    saved = Recipe.create_instance(str(folder / "out/recipe.yaml")).modifiers
    assert [(one.mask_structure, one.model_extra) for one in saved] == [("2:4", {"method": "wanda"})]


def test_targets_and_ignore(dense):
    model, modifier = oneshots.modified(
        dense, sparsity=0.5, method="wanda", targets=["LlamaMLP", "re:.*q_proj"], ignore="re:.*1.mlp.up_proj")
    assert [row["name"] for row in modifier.report.layers] == [
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.self_attn.q_proj.weight", "model.layers.1.mlp.gate_proj.weight",
        "model.layers.1.mlp.down_proj.weight"]
    assert modifier.report.dense == ["model.layers.1.mlp.up_proj.weight"]
    assert differing(model, oneshots.load(dense)) == [row["name"] for row in modifier.report.layers]


def test_a_server_elsewhere_keeps_nothing(dense, shared_server):
    _, modifier = oneshots.modified(dense, sparsity=0.5, method="wanda", server=shared_server.address)
    with sparsefw.connect(shared_server.address) as client:
        assert list(client.jobs()) == [] and client.list() == []
        assert modifier.report.versions["server"] == client.info().version


def test_weights_of_gpt2_lie_transposed(folder):
    model, modifier = oneshots.modified(
        oneshots.save(folder / "gpt2", "gpt2"), sparsity=0.5, method="wanda", targets=["Conv1D"])
    assert [row["shape"] for row in modifier.report.layers[:1]] == [[96, 32]]
    for row in modifier.report.layers:
        weight = model.get_parameter(row["name"]).T
        assert ((weight == 0).sum(1) == weight.shape[1] // 2).all()


def test_experts_that_no_token_reached_are_pruned_by_magnitude(folder):
    """llm-compressor makes a module of every expert."""
    dense = oneshots.save(folder / "mixtral", "mixtral")
    model, modifier = oneshots.load(dense), SparseFWModifier(sparsity=0.5)
    # One sequence of one token: it reaches few experts.
    oneshots.oneshot(model, modifier, [[5] * oneshots.LENGTH], moe_calibrate_all_experts=False)
    rows = modifier.report.rows()
    assert len(rows) == 2 * (4 + 4 * 3)
    unseen = [row for row in rows if row["note"]]
    assert 0 < len(unseen) < len(rows)
    for row in rows:
        weight = model.get_parameter(row["name"])
        assert ((weight == 0).sum(1) == weight.shape[1] // 2).all(), row["name"]
        assert (row["tokens"] == 0) == bool(row["note"])


@pytest.mark.parametrize(("arguments", "words"), [
    ({"sparsity": 0.6, "mask_structure": "2:4"}, "its own sparsity, 0.5; got sparsity=0.6"),
    ({}, "needs sparsity"),
    ({"mask_structure": "4:2"}, "removes N of M"),
    ({"mask_structure": "half"}, 'must be "N:M"'),
    ({"sparsity": 0.5, "pattern": "2:4"}, "give mask_structure"),
    ({"sparsity": 0.5, "labels": {}}, "sets labels itself"),
    ({"sparsity": 0.5, "owl_m": 5}, "has no owl_m"),
    ({"sparsity": 0.5, "dampening_frac": 0.1}, "damping, with method"),
    ({"sparsity": 0.5, "sequential_targets": ["LlamaDecoderLayer"]}, "oneshot.sequential_targets"),
    ({"sparsity": 0.5, "iteration": 3}, "no option iteration"),
    ({"sparsity": 0.5, "method": "best"}, '"sparsefw"'),
    ({"sparsity": 0.5, "warm_start": [[True]]}, "the name of a method"),
])
def test_wrong_arguments_are_refused_before_a_model_is_read(arguments, words):
    with pytest.raises(ValueError, match=words):
        SparseFWModifier(**arguments)


def test_a_run_that_cannot_prune_says_so(dense):
    with pytest.raises(sparsefw.InvalidArgument, match="no linear layer matches targets"):
        oneshots.modified(dense, sparsity=0.5, targets=["Conv2d"])
    with pytest.raises(sparsefw.InvalidArgument, match="no report before oneshot"):
        _ = SparseFWModifier(sparsity=0.5).report


def test_an_error_of_a_job_names_the_layer_and_leaves_nothing(dense, shared_server):
    model = oneshots.load(dense)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    modifier = SparseFWModifier(sparsity=0.5, method="wanda", server=shared_server.address)
    with pytest.raises(sparsefw.Error, match=r"model.layers.1.mlp.up_proj.weight: .*weight"):
        oneshots.oneshot(model, modifier)
    with sparsefw.connect(shared_server.address) as client:
        assert list(client.jobs()) == [] and client.list() == []
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_layers_with_the_same_input_have_one_sum():
    first, second, third = (torch.nn.Linear(4, 2) for _ in range(3))
    sums = Sums(samples=40)
    inputs = [torch.randn(3, 4) for _ in range(40)]
    for sample, batch in enumerate(inputs):
        other = batch.clone()
        sums.add(first, sample, batch)
        sums.add(second, sample, batch)
        sums.add(third, sample, other)
    assert sums.first(second) is first and sums.first(third) is third
    assert sums.total(first).tokens == 120
    every = torch.cat(inputs)
    torch.testing.assert_close(sums.total(first).matrix(), every.T @ every)
    sums.clear()
    assert sums.first(first) is None


def test_what_changed_in_place_is_another_input():
    first, second = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    sums, batch = Sums(samples=1), torch.ones(3, 4)
    sums.add(first, 0, batch)
    batch += 1
    sums.add(second, 0, batch)
    assert sums.first(second) is second
    assert float(sums.total(second).matrix()[0, 0]) == 12


def test_patterns():
    assert [pattern_of(one) for one in ("0:0", "per-row", "unstructured", "2:4", "1:4", "3:4")] == [
        "per-row", "per-row", "unstructured", "2:4", "3:4", "1:4"]


def test_samples_are_needed(dense):
    with pytest.raises(sparsefw.InvalidArgument, match="needs samples: give oneshot a dataset"):
        llmcompressor.oneshot(model=oneshots.load(dense), recipe=SparseFWModifier(sparsity=0.5))


@pytest.mark.parametrize("fails", ["connect", "version"])
def test_a_server_that_cannot_be_reached_leaves_no_hooks(dense, monkeypatch, fails):
    def lost(*_, **__):
        raise sparsefw.Unavailable("lost", code=grpc.StatusCode.UNAVAILABLE)

    monkeypatch.setattr(servers, "connect", lost) if fails == "connect" else monkeypatch.setattr(
        sparsefw.Client, "info", lost)
    model, modifier = oneshots.load(dense), SparseFWModifier(sparsity=0.5, method="wanda")
    state = SimpleNamespace(model=model, data=SimpleNamespace(calib=[None] * 4))
    modifier.on_initialize(state)
    with pytest.raises(sparsefw.Unavailable):
        modifier.on_calibration_start(state, None)
    assert not any(module._forward_pre_hooks for module in model.modules())
    model(torch.ones(1, 4, dtype=torch.long))


IN_TWO = """
import sys
import torch
import sparsefw
from sparsefw.llmcompressor import SparseFWModifier

torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
try:
    SparseFWModifier(sparsity=0.5).on_initialize(None)
except sparsefw.InvalidArgument as error:
    sys.exit(error.message)
"""


def test_several_processes_are_refused(folder):
    command = [sys.executable, "-c", IN_TWO, str(folder / "meeting")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True, env=env) for rank in (0, 1)]
    for process in both:
        assert "start oneshot without torchrun" in process.communicate(timeout=HANG)[1]
        assert process.returncode == 1
