"""The PyTorch peer against the same algorithm in NumPy float64, written independently: groups
as lists of indices, one loop over them. Skipped, visibly, where there is no PyTorch."""
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from cpu.layers import make_gram, make_weight, write_safetensors
from cpu.plans import PATTERNS
from harness.places import PEERS, find_python
from harness.process import LineProgram
from support.processes import HANG

ROWS, COLS, STEPS = 24, 40, 20


@pytest.fixture(scope="module")
def layer():
    random = np.random.default_rng(5)
    return make_weight(ROWS, COLS, random), make_gram(COLS, random).astype(np.float32)


@pytest.fixture(scope="module")
def peer(layer, tmp_path_factory):
    python, reason = find_python("torch", print)
    if python is None:
        pytest.skip(reason)
    path = tmp_path_factory.mktemp("peer") / "layer.safetensors"
    write_safetensors(path, {"weight": layer[0], "gram": layer[1]})
    with LineProgram([python, PEERS / "pytorch_peer.py", "--layer", path, "--threads", 1],
                     HANG) as running:
        yield running


def groups_of(pattern):
    """[(flat indices of the group, how many are kept)]"""
    everything = np.arange(ROWS * COLS)
    if pattern == "unstructured":
        return [(everything, ROWS * COLS - int(ROWS * COLS * 0.6))]
    if pattern == "per_row":
        return [(row, COLS - int(COLS * 0.6)) for row in everything.reshape(ROWS, COLS)]
    return [(group, 2) for group in everything.reshape(-1, 4)]


def largest(indices, scores, count):
    return indices[np.argsort(-scores[indices], kind="stable")[:count]]


def frank_wolfe(weight, gram, pattern, alpha, steps):
    """The relaxed loss after `steps` open-loop steps, in float64."""
    weight, gram = weight.astype(np.float64), gram.astype(np.float64)
    saliency = (np.abs(weight) * np.sqrt(np.diag(gram))).ravel()
    groups = groups_of(pattern)
    warm = np.concatenate([largest(group, saliency, keep) for group, keep in groups])
    parts = [warm] if pattern == "unstructured" else [
        warm[warm // COLS == row] for row in range(ROWS)]
    fixed = np.concatenate([largest(part, saliency, int(alpha * len(part))) for part in parts])
    is_fixed = np.isin(np.arange(ROWS * COLS), fixed)
    mask = np.zeros(ROWS * COLS)
    mask[warm] = 1
    for step in range(steps):
        pruned = weight * (1 - mask.reshape(ROWS, COLS))
        scores = (weight * (pruned @ gram)).ravel()
        vertex = is_fixed.astype(float)
        for group, keep in groups:
            free = group[~is_fixed[group]]
            chosen = largest(free, scores, keep - is_fixed[group].sum())
            vertex[chosen[scores[chosen] > 0]] = 1
        mask += 2 / (step + 2) * (vertex - mask)
    pruned = weight * (1 - mask.reshape(ROWS, COLS))
    return (pruned * (pruned @ gram)).sum()


@pytest.mark.parametrize("alpha", [0.9, 0.5, 0.0])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_peer_follows_the_algorithm(peer, layer, pattern, alpha):
    answer = peer.ask({"pattern": PATTERNS[pattern], "alpha": alpha, "iterations": STEPS,
                       "seconds": HANG}, HANG)
    assert answer["iterations"] == STEPS == len(answer["seconds_after"])
    assert answer["seconds_after"] == sorted(answer["seconds_after"])
    expected = frank_wolfe(*layer, pattern, alpha, STEPS)
    assert answer["relaxed_loss"] == pytest.approx(expected, rel=1e-5)


def test_peer_keeps_its_time_limit(peer):
    answer = peer.ask({"pattern": "2:4", "alpha": 0.9, "iterations": 10**7, "seconds": 0.2}, HANG)
    assert 1 <= answer["iterations"] < 10**7


@pytest.mark.parametrize("pattern", ["unstructured", "per_row", "2:4"])
def test_alps_loses_what_the_program_of_the_golden_vectors_does(layer, peer, tmp_path, pattern):
    spec = importlib.util.spec_from_file_location(
        "golden", Path(__file__).parents[1] / "golden/make_alps_golden.py")
    golden = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(golden)
    weight, gram = layer[0].astype(np.float64), layer[1].astype(np.float64)
    kind = {"unstructured": {"kind": "unstructured", "sparsity": 0.6},
            "per_row": {"kind": "per_row", "sparsity": 0.6},
            "2:4": {"kind": "nm", "keep": 2, "group": 4}}[pattern]
    _, updated, _ = golden.alps(weight, gram, kind)
    loss = np.einsum("ij,jk,ik->", weight - updated, gram, weight - updated)
    path = tmp_path / "layer.safetensors"
    write_safetensors(path, {"weight": layer[0], "gram": layer[1]})
    python, _ = find_python("torch", print)
    with LineProgram([python, PEERS / "pytorch_alps.py", "--layer", path, "--threads", 1],
                     HANG) as running:
        answer = running.ask({"pattern": PATTERNS[pattern]}, HANG)
    # float32 there: a near-tie may fall otherwise.
    assert answer["loss"] == pytest.approx(loss, rel=0.02)
