"""Presets of whole models: which jobs and which refinement they stand for, and what wins over them."""

import dataclasses
import importlib
from pathlib import Path

import pytest
import sparsefw
import tiny
import torch
from sparsefw.hf import BlockRefinement, prune_model
from sparsefw.hf.presets import PRESETS, REFINED_JOB

ROOT = Path(__file__).resolve().parents[4]


def prune(client, **options):
    arguments = {"data": tiny.tokens(count=12), "sparsity": 0.5, "server": client, "progress": False}
    return prune_model(tiny.make("llama"), **{**arguments, **options})


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_its_jobs_and_its_refinement(preset, client):
    report = prune(client, preset=preset)
    refinement = PRESETS[preset].refinement
    assert report.settings["options"] == {"preset": preset}
    assert (report.distillation is not None) == (PRESETS[preset].distillation is not None)
    assert {row["method"] for row in report.layers} == {f"preset {preset if refinement is None else REFINED_JOB}"}
    if refinement is None:
        assert report.refinements == [] and report.settings["refine_blocks"] is None
    else:
        assert [record["epochs"] for record in report.refinements] == [refinement.epochs] * 2
        assert report.settings["refine_blocks"]["epochs"] == refinement.epochs


def test_nothing_named_is_the_preset_balanced(client):
    report, asked = prune(client), prune(client, preset="balanced")
    assert [row["losses"] for row in report.layers] == [row["losses"] for row in asked.layers]
    assert report.settings["refine_blocks"] == asked.settings["refine_blocks"] is not None
    assert report.settings["method"] == "preset balanced"
    # Nor does what says nothing about how a matrix is pruned, such as a device.
    assert prune(client, job_device="cpu", samples=4).refinements != []
    # Without what refinement needs, the layers have the preset alone.
    alone = prune(client, propagate=False)
    assert alone.refinements == [] and {row["method"] for row in alone.layers} == {"preset balanced"}


@pytest.mark.parametrize(
    ("options", "method"),
    [({"method": "wanda"}, "wanda"), ({"iterations": 20}, "sparsefw"), ({"refine_blocks": False}, "sparsefw")])
def test_what_names_a_method_or_an_option_has_the_papers_values(client, options, method):
    report = prune(client, **options)
    assert report.refinements == [] and {row["method"] for row in report.layers} == {method}
    paper = prune(client, preset="paper", **options)
    assert [row["losses"] for row in report.layers] == [row["losses"] for row in paper.layers]


def test_the_reproduction_knows_what_presets_mean(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "client/python/benchmarks/reproduce")
    known = dict(importlib.import_module("settings").PRESETS)
    for name in ("fast", "balanced", "best"):
        assert known.pop(name) == {"job": REFINED_JOB, **dataclasses.asdict(PRESETS[name])}
    assert not known


def test_presets_are_a_ladder():
    """Each has more passes than the one before."""
    epochs = [PRESETS[name].refinement.epochs for name in ("fast", "balanced", "best")]
    assert epochs == sorted(set(epochs))


def test_what_the_call_says_wins(client):
    assert prune(client, preset="fast", refine_blocks=False).refinements == []
    report = prune(client, preset="best", refine_blocks=BlockRefinement(epochs=1))
    assert [record["epochs"] for record in report.refinements] == [1, 1]
    report = prune(client, preset="fast", refine_blocks=True, method="magnitude")
    assert [record["epochs"] for record in report.refinements] == [PRESETS["fast"].refinement.epochs] * 2
    assert report.layers[0]["method"] == "magnitude"
    assert "\npreset fast; overridden by: method\n" in str(report)
    assert prune(client, method="wanda").refinements == []


@pytest.mark.parametrize(("refine", "job"), [
    (None, {"method": "wanda"}),
    (False, {"warm_start": "wanda", "iterations": 200, "step_rule": "line-search", "report_every": 50})])
def test_the_jobs_of_a_preset_with_and_without_refinement(refine, job, client):
    """Where nothing is refined, a layer's own preset of that name. The first block shows it: its inputs are the same."""
    of_preset = prune(client, preset="balanced", refine_blocks=refine)
    first = of_preset.layers[0]
    inputs = first["shape"][1]
    if refine is False:  # by the tokens: docs/cli.md
        job = {**job, "shrinkage": min(0.03, 0.4 * inputs / first["tokens"])}
    of_options = prune(client, alpha=0.5, swaps=True, **job)
    alike = [index for index, layer in enumerate(of_preset.layers[:7]) if layer["shape"][1] == inputs]
    assert len(alike) >= 5
    for index in alike:
        assert of_preset.rows()[index]["loss"] == of_options.rows()[index]["loss"]


def test_an_unknown_preset_is_named(client):
    with pytest.raises(sparsefw.InvalidArgument, match="one of paper, fast, balanced, best; got slow"):
        prune(client, preset="slow")


def test_a_preset_that_cannot_refine_says_how_to_go_without(client):
    with pytest.raises(sparsefw.InvalidArgument, match="refine_blocks=False goes without"):
        prune(client, preset="fast", propagate=False)
    assert prune(client, preset="fast", propagate=False, refine_blocks=False).refinements == []


def test_presets_are_candidates(client):
    candidates = [{"preset": "paper"}, {"preset": "fast"}, {"preset": "fast", "refine_blocks": None}]
    report = prune(client, tune=candidates)
    losses = [candidate["loss"] for candidate in report.tuning["candidates"]]
    assert losses[1] == losses[2] != losses[0]
    chosen = report.tuning["candidates"][report.tuning["chosen"]]["options"]
    assert bool(report.refinements) == (chosen["preset"] == "fast")
