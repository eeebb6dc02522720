"""The smallest run of the whole suite, with the real programs and without PyTorch."""
import dataclasses
import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from cpu import methods, report, schema
from cpu.layers import write_layer, write_safetensors
from cpu.plans import SMOKE
from harness import tables
from harness.process import ProgramError, run_json, timed_iterations


def suite(bin_folder, *arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "core/benchmarks/cpu"), "--bin", str(bin_folder),
         "--plan", "smoke", "--no-peer", "--no-install", *map(str, arguments)],
        capture_output=True, text=True, check=False)


@pytest.fixture
def program():
    """The suite, to be changed."""
    spec = importlib.util.spec_from_file_location(
        "bench_main", ROOT / "core/benchmarks/cpu/__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_is_measured_and_reported(bin_folder, tmp_path):
    page = (ROOT / "docs/benchmarks.md").read_bytes()
    out = tmp_path / "results.json"
    done = suite(bin_folder, "--out", out)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    schema.check(results)
    threads = [entry["threads"] for entry in results["ceilings"]]
    cells = len(SMOKE.shapes) * len(threads) * 3 * 2  # patterns, alphas
    assert len(results["iterations"]) == cells
    for cell in results["iterations"]:
        last = cell["runs"][0][-1]
        assert last["iterations"] == SMOKE.iterations
        assert 0 < last["toggled_per_iteration"] < cell["rows"] * cell["cols"]
    assert [entry["layer"] for entry in results["methods"]] == ["synthetic 64x48"]
    assert results["peer_skipped"] == "--no-peer" and "PyTorch SKIPPED: --no-peer" in done.stderr
    measured = {goal["what"] for goal in results["goals"] if goal["value"] is not None}
    assert {"one iteration, unstructured", "one iteration, per_row", "one iteration, 2:4",
            "Gram sum of fp32", "peak memory of a solve"} <= measured
    assert "| what " in done.stdout and "Milliseconds for one iteration" in done.stdout
    assert (ROOT / "docs/benchmarks.md").read_bytes() == page  # only a full run writes it


def test_a_full_run_writes_json_and_pages(program, bin_folder, tmp_path, monkeypatch, capsys):
    """All that a full run does, on the layers of the smallest one, in a folder of its own."""
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(program, "PLANS", {"full": dataclasses.replace(SMOKE, name="full")})
    (tmp_path / "docs").mkdir()
    for page in ("docs/benchmarks.md", "docs/goals.md"):
        (tmp_path / page).write_text((ROOT / page).read_text())
    program.main(["--bin", str(bin_folder), "--no-peer", "--no-install"])
    (written,) = (tmp_path / "docs/benchmarks").glob("*-cpu-*core.json")
    results = json.loads(written.read_text())
    schema.check(results)
    table = tables.goal_table(results["goals"], markdown=True)
    for page, there in (("docs/benchmarks.md", report.iteration_table(results)), ("docs/goals.md", table)):
        text = (tmp_path / page).read_text()
        assert f"(benchmarks/{written.name})" in text and there in text
    assert table in capsys.readouterr().out
    assert not (tmp_path / "build/bench/unfinished-full.json").exists()


def test_a_run_that_ends_early_leaves_what_it_has(program, bin_folder, tmp_path, monkeypatch):
    def fail(*_):
        raise ProgramError("the program ended")

    monkeypatch.setattr(program.measure, "gram", fail)
    with pytest.raises(ProgramError, match="the program ended"):
        program.main(["--bin", str(bin_folder), "--plan", "smoke", "--no-peer", "--no-install",
                      "--out", str(tmp_path / "results.json")])
    assert set(json.loads((tmp_path / "unfinished-smoke.json").read_text())) >= {"ceilings", "iterations", "late"}
    assert not (tmp_path / "results.json").exists()
    # A run of one section leaves it alone.
    program.main(["--bin", str(bin_folder), "--plan", "smoke", "--no-peer", "--no-install", "--only", "memory",
                  "--out", str(tmp_path / "memory.json")])
    assert (tmp_path / "unfinished-smoke.json").exists()


def test_every_method_is_measured_and_goes_into_both_pages(program, bin_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(program, "PLANS", {"full": dataclasses.replace(SMOKE, name="full")})
    (tmp_path / "docs").mkdir()
    for page in ("docs/benchmarks.md", "docs/cli.md"):
        (tmp_path / page).write_text((ROOT / page).read_text())
    program.main(["--bin", str(bin_folder), "--no-peer", "--no-install", "--only", "methods"])
    (written,) = (tmp_path / "docs/benchmarks").glob("*-methods-*core.json")
    (entry,) = json.loads(written.read_text())["methods"]
    found = {name: (loss, new) for name, _, loss, new in methods.points(entry)}
    assert set(found) == set(methods.WAYS)
    assert {name for name, (_, new) in found.items() if not new} >= {"Wanda", "preset paper"}
    assert found["preset best"][1] and found["preset best"][0] < found["Wanda"][0]
    for name in ("Wanda", "SparseGPT", "preset best"):
        assert f"| {name} " in (tmp_path / "docs/benchmarks.md").read_text()
    presets = (tmp_path / "docs/cli.md").read_text().split("<!-- presets:begin -->")[1]
    assert f"{found['preset best'][0]:.2f} %" in presets.split("<!-- presets:end -->")[0]


def test_one_measurement_alone(bin_folder, tmp_path):
    out = tmp_path / "gram.json"
    done = suite(bin_folder, "--only", "gram", "--out", out)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    schema.check(results)
    assert results["gram"] and "iterations" not in results and "memory" not in results
    assert any(goal["note"] == "not measured" for goal in results["goals"])


def test_one_layer_of_one_measurement(bin_folder, tmp_path):
    out = tmp_path / "late.json"
    done = suite(bin_folder, "--only", "late", "--shape", "16x24", "--out", out)
    assert done.returncode == 0, done.stderr
    assert {(cell["rows"], cell["cols"]) for cell in json.loads(out.read_text())["late"]} == {(16, 24)}
    refused = suite(bin_folder, "--shape", "16x24")
    assert refused.returncode == 2 and "--only" in refused.stderr


def test_marks_limits_and_toggles_of_iterations(bin_folder, tmp_path):
    layer = tmp_path / "layer.safetensors"
    write_layer(layer, 32, 40)
    case = {"pattern": "per_row:0.5", "alpha": 0.5}
    runs = timed_iterations(bin_folder, layer, 1,
                            {**case, "iterations": 30, "marks": [7, 90, 20], "repetitions": 2,
                             "seconds": 30})
    assert [[mark["iterations"] for mark in marks] for marks in runs] == [[7, 20, 30]] * 2
    first, second = runs
    for a, b in zip(first, second):  # the same steps, whatever the clock did
        assert a["relaxed_loss"] == b["relaxed_loss"]
        assert a["toggled_per_iteration"] == b["toggled_per_iteration"]
    (limited,) = timed_iterations(bin_folder, layer, 1, {**case, "iterations": 10**9,
                                                         "seconds": 0.1, "repetitions": 3})
    assert 1 <= limited[-1]["iterations"] < 10**9


def test_solve_program_reports_target_and_memory(bin_folder, tmp_path):
    layer = tmp_path / "layer.safetensors"
    write_layer(layer, 32, 40)
    flags = {"layer": layer, "pattern": "unstructured:0.6", "iterations": 40, "threads": 1}
    free = run_json(bin_folder, "sparsefw-bench-solve", flags)
    assert free["final_loss"] < free["warm_start_loss"] and free["seconds_to_target"] is None
    assert free["peak_resident_bytes"] >= free["resident_before_bytes"] > 0
    reached = run_json(bin_folder, "sparsefw-bench-solve", {**flags, "target": free["final_loss"]})
    assert 0 < reached["seconds_to_target"] <= reached["seconds"]
    never = run_json(bin_folder, "sparsefw-bench-solve", {**flags, "target": 0})
    assert never["seconds_to_target"] is None


@pytest.mark.parametrize("flags, message", [
    ({}, "--layer is missing"),
    ({"layer": "none.safetensors", "pattern": "2:4"}, "none.safetensors"),
    ({"layer": "LAYER", "pattern": "2/4"}, "--pattern must be"),
    ({"layer": "LAYER", "pattern": "2:4", "iteration": 3}, "unknown flag --iteration"),
    ({"layer": "LAYER", "pattern": "2:4", "threads": "two"}, "--threads must be an integer")])
def test_programs_refuse_what_they_cannot_measure(bin_folder, tmp_path, flags, message):
    layer = tmp_path / "layer.safetensors"
    write_safetensors(layer, {"weight": np.ones((4, 8)), "gram": np.eye(8)})
    flags = {key: layer if value == "LAYER" else value for key, value in flags.items()}
    with pytest.raises(ProgramError, match=message):
        run_json(bin_folder, "sparsefw-bench-solve", flags)
