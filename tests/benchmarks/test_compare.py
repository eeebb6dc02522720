"""Two runs of script/bench, cell by cell."""
import copy
import json
import subprocess
import sys

import pytest
from conftest import ROOT
from cpu import compare

KEPT = ROOT / "docs/benchmarks/2026-11-23-cpu-2core.json"


@pytest.fixture
def old():
    return json.loads(KEPT.read_text())


def test_a_run_is_not_slower_than_itself(old):
    cells = compare.cells(old, old)
    kinds = {cell["what"] for cell in cells}
    assert {"iteration", "Gram sum", "peak memory", "solve, fast"} <= kinds
    assert len([cell for cell in cells if cell["what"] == "iteration"]) == len(old["iterations"])
    assert all(cell["ratio"] == 1 and not cell["slower"] for cell in cells)


def scaled(results, factor):
    changed = copy.deepcopy(results)
    for run in changed["iterations"][0]["runs"]:
        for mark in run:
            mark["seconds"] *= factor
    return changed


def test_what_is_slower_by_more_than_noise_is_flagged(old):
    noise = compare.cells(old, old)[0]["noise"]
    assert noise >= compare.NOISE
    words, slower = compare.text(old, scaled(old, noise * 1.01))
    assert slower == 1 and words.count("SLOWER") == 1
    assert compare.text(old, scaled(old, noise * 0.99))[1] == 0
    assert "faster" in compare.text(old, scaled(old, 0.5))[0]


def test_noise_is_at_least_what_the_repetitions_differ_by(old):
    changed = copy.deepcopy(old)
    for mark in changed["iterations"][0]["runs"][0]:
        mark["seconds"] *= 3
    assert compare.cells(changed, old)[0]["noise"] > 2


def test_only_the_common_iterations_are_compared(old):
    changed = copy.deepcopy(old)
    for run in changed["iterations"][0]["runs"]:
        del run[1:]
    assert compare.cells(old, changed)[0]["ratio"] == 1


@pytest.mark.parametrize("factor, status", [(1, 0), (9, 1)])
def test_the_command(old, tmp_path, factor, status):
    new = tmp_path / "new.json"
    new.write_text(json.dumps(scaled(old, factor)))
    done = subprocess.run([sys.executable, str(ROOT / "core/benchmarks/cpu"), "--compare",
                           str(KEPT), str(new)], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "cells are slower by more than noise" in done.stdout
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": 1}')
    done = subprocess.run([sys.executable, str(ROOT / "core/benchmarks/cpu"), "--compare",
                           str(KEPT), str(broken)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "results has no date" in done.stderr
