"""The allocation that script/reproduce allocation searches for, on a tiny model."""

import dataclasses
import sys
from pathlib import Path

import pytest
import tiny
import torch
from sparsefw.hf import data, prune_model

sys.path.insert(0, str(Path(__file__).resolve().parents[5] / "client/python/benchmarks/reproduce"))

import byte_model  # noqa: E402
import search  # noqa: E402
import settings  # noqa: E402

TEXT = " ".join(f"{index} is followed by {index + 1}," for index in range(180))
SCALE = dataclasses.replace(settings.ALLOCATION, samples=4, sequence_length=32)
OPTIONS = {"pattern": "per-row", "sparsity": 0.5,
           "search": {"levels": [-0.25, 0.0, 0.25], "blocks": 1, "iterations": 5, "sequences": 2}}


def test_a_search_keeps_the_mean_and_leaves_the_model(shared_server):
    model = tiny.make("llama", vocab_size=256)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = search.find(model, byte_model.tokenizer, TEXT, shared_server, SCALE, OPTIONS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    linears = search.matrices(model)
    of_group = search.groups(linears, 1)
    assert sorted(name for names in of_group.values() for name in names) == sorted(linears)
    assert found["allocation"].keys() == found["curves"].keys() == of_group.keys()
    assert len({points[1]["loss"] for points in found["curves"].values()}) == 1  # the middle is the same model
    assert any(points[0]["loss"] != points[1]["loss"] for points in found["curves"].values())
    report = prune_model(
        model, byte_model.tokenizer, data=TEXT, server=shared_server.address, samples=4, sequence_length=32,
        progress=False, pattern="per-row", sparsity=0.5, method="wanda", allocation=found["allocation"])
    assert report.sparsity == pytest.approx(0.5, abs=0.01)  # rows have whole weights
    assert len({round(row["sparsity"], 2) for row in report.layers}) > 1


def test_no_held_back_sequence_is_a_sample():
    every = [one.tolist() for one in data.sequences(byte_model.tokenizer, TEXT, 32, None)]
    samples = [one.tolist() for one in data.sequences(byte_model.tokenizer, TEXT, 32, 4)]
    judged = [one.tolist() for one in search.held_back(byte_model.tokenizer, TEXT, 32, 4, 2)]
    assert len(judged) == 2
    places = [[every.index(one) for one in some] for some in (samples, judged)]
    assert places == [[0, 32, 64, 96], [16, 80]]
