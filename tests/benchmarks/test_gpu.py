"""The benchmarks of a GPU on a backend that needs none: the same programs, cases and arithmetic."""
import dataclasses
import json
import subprocess
import sys

import pytest
from conftest import ROOT
from gpu import cases, goals, report
from gpu.measure import SLACK_SECONDS, Bench
from harness.process import LineProgram, ProgramError
from support.processes import HANG


def suite(bin_folder, *arguments):
    return subprocess.run([sys.executable, str(ROOT / "core/benchmarks/gpu"), "--bin",
                           str(bin_folder), *map(str, arguments)],
                          capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def smoke(bin_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu") / "results.json"
    done = suite(bin_folder, "--plan", "smoke", "--device", "cpu", "--no-peer", "--out", out)
    return done, json.loads(out.read_text()) if out.exists() else None


def test_every_case_is_measured(smoke):
    done, results = smoke
    assert done.returncode == 0, done.stderr
    assert len(results["cases"]) == len(cases.all_cases(cases.SMOKE))
    assert {case["measure"] for case in results["cases"]} == {
        "iterations", "forms", "stages", "preset", "model", "gram", "parallel"}
    assert not results["failures"] and not results["left_out"]
    for case in goals.select(results, measure="iterations"):
        seconds, count = goals.per_iteration(case)
        assert seconds > 0 and count == case["iterations"]
    forms = goals.select(results, measure="forms")
    assert {(case["form"], case["precision"]) for case in forms} == set(cases.FORMS)
    table = report.form_table(results)
    assert len(table.splitlines()) == 2 + len(forms) and "dense" in table
    for case in goals.select(results, measure="stages"):
        assert case["refined_loss"] <= case["loss"] * (1 + 1e-12)
        assert case["reconstructed_loss"] <= case["refined_loss"] * (1 + 1e-9)
    for case in goals.select(results, measure="gram"):
        assert case["relative_error"] < 1e-5
    presets = goals.select(results, measure="preset", layer=cases.REAL)
    assert {(case["preset"], case["on"]) for case in presets} == {
        ("fast", "engine"), ("balanced", "engine"), ("best", "engine"), ("fast", "cpu"), ("balanced", "cpu")}
    assert all(0 < case["final_loss"] <= case["warm_start_loss"] for case in presets)
    assert len(report.preset_table(results).splitlines()) == 2 + len(presets)


def test_it_is_labelled_as_no_result_of_a_gpu(smoke):
    done, results = smoke
    assert results["gpu_result"] is False and results["device"] == "cpu"
    assert done.stdout.startswith('NOT A GPU RESULT: measured on the backend "cpu"')


def test_the_model_is_extrapolated_and_says_so(smoke):
    _, results = smoke
    (gap,) = [goal for goal in results["goals"] if "gap stop" in goal["what"]]
    assert "through a server, EXTRAPOLATED from 6 jobs" in gap["note"]
    # There is no goal of a schedule that the plan does not have.
    assert not [goal for goal in results["goals"] if "2000 iterations each" in goal["what"]]


def test_list_needs_no_device(bin_folder, tmp_path):
    done = suite(tmp_path, "--list")
    assert done.returncode == 0, done.stderr
    for shape in ("4096x4096", "1024x4096", "14336x4096", "4096x14336"):
        assert shape in done.stdout


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there(bin_folder, tmp_path, device):
    done = suite(bin_folder, "--device", device, "--out", tmp_path / "none.json")
    assert done.returncode == 3
    assert device in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "none.json").exists()


def test_what_does_not_fit_the_time_is_listed(bin_folder, tmp_path):
    out = tmp_path / "short.json"
    done = suite(bin_folder, "--plan", "smoke", "--device", "cpu", "--no-peer", "--out", out,
                 "--seconds", "0.5")
    results = json.loads(out.read_text())
    assert results["left_out"] and done.returncode == 1
    assert "no iteration was measured" in results["failures"]


@pytest.fixture
def program(bin_folder):
    running = LineProgram([bin_folder / "sparsefw-bench-device", "--device", "reference"], 30)
    yield running
    running.close()


@pytest.mark.parametrize("request_, words", [
    ({"measure": "speed"}, "--layer is missing"),
    ({"measure": "gram", "dtype": "int8"}, "dtype must be fp32, bf16 or fp16"),
    ({"measure": "gram", "cols": "many"}, "type must be number"),
    ({}, "measure"),
    ([], "must be a JSON object")])
def test_a_wrong_case_is_answered(program, request_, words):
    with pytest.raises(ProgramError, match=words):
        program.ask(request_, 30)
    assert program.ended  # an error may be one that spoils all later answers of the process


def test_a_program_is_started_anew_after_an_error(bin_folder):
    """As after a sticky error of CUDA: the next case must not be asked of the same process."""
    with Bench(bin_folder, "cpu", HANG, lambda line: None) as bench:
        gram = {"measure": "gram", "cols": 8, "tokens": 16, "repetitions": 1, "dtype": "bf16"}
        assert "dtype must be" in bench.case(cases.SMOKE, None, {**gram, "dtype": "int8"})["error"]
        first = bench.engine
        assert bench.case(cases.SMOKE, None, gram)["seconds"] > 0
        assert bench.engine is not first


def test_cases_that_hang_do_not_eat_the_time(tmp_path):
    program = tmp_path / "sparsefw-bench-device"
    program.write_text(f"#!/bin/sh\necho x >> {tmp_path}/starts\necho '{{}}'; exec sleep 60\n")
    program.chmod(0o755)
    case = {"measure": "gram", "dtype": "bf16"}
    with Bench(tmp_path, "cpu", 60, lambda line: None) as bench:
        errors = [bench.case(dataclasses.replace(cases.SMOKE, seconds=0.1 - SLACK_SECONDS / 2),
                             None, case)["error"] for _ in range(4)]
    assert ["did not answer" in error for error in errors] == [True, True, False, False]
    assert "2 cases of this program hung" in errors[3]
    assert (tmp_path / "starts").read_text() == "x\nx\n"


def test_a_program_that_does_not_answer_is_ended():
    with pytest.raises(ProgramError, match="did not answer within"):
        LineProgram(["sleep", "60"], 0.2)
    with pytest.raises(ProgramError, match="ended with status 1"):
        LineProgram(["false"], 10)


def case(seconds_by_mark, peers=None, **changes):
    run = [{"iterations": count, "seconds": seconds, "toggled_per_iteration": 10,
            "relaxed_loss": 5.0} for count, seconds in seconds_by_mark.items()]
    return {"measure": "iterations", "rows": 4096, "cols": 4096, "precision": "fp32",
            "pattern": "unstructured:0.6", "alpha": 0.9, "rule": "open-loop", "runs": [run],
            "load_seconds": 0.1, "peer": peers or {}, **changes}


def results_of(*measured, **changes):
    return {"cases": list(measured), **changes}


def one(found, what):
    (goal,) = [goal for goal in found if goal["what"].startswith(what)]
    return goal


def test_time_of_an_iteration_leaves_out_what_a_call_costs():
    # 1 s once, then 1 ms an iteration
    assert goals.per_iteration(case({10: 1.01, 110: 1.11, 2000: 3.0})) == (
        pytest.approx(1e-3), 2000)
    assert goals.per_iteration(case({10: 0.02})) == (pytest.approx(2e-3), 10)


def test_headline_goals():
    found = goals._headline(results_of(case({10: 0.01, 2000: 0.4})), (4096, 4096))
    fp32 = [goal for goal in found if "fp32" in goal["where"]]
    assert [goal["met"] for goal in fp32] == [True, True]
    assert fp32[1]["value"] == 0.4
    others = [goal for goal in found if "fp32" not in goal["where"]]
    assert others and all(goal["met"] is None and goal["note"] for goal in others)


def test_peer_is_compared_over_the_same_iterations():
    peers = {"fp32": {"iterations": 50, "seconds_after": [1.0] * 49 + [2.0], "relaxed_loss": 5.0},
             "tf32": {"error": "out of memory"}}
    results = results_of(case({10: 0.01, 50: 0.05, 2000: 0.4}, peers))
    found = goals._peers(results)
    assert one(found, "against PyTorch fp32")["value"] == pytest.approx(40)
    assert one(found, "relaxed loss")["met"] is True
    assert one(found, "against PyTorch tf32")["note"] == "out of memory"
    assert goals.failures(results) == ["PyTorch tf32 beside unstructured:0.6: out of memory"]


def test_wrong_figures_are_failures():
    off = {"fp32": {"iterations": 10, "seconds_after": [0.1] * 10, "relaxed_loss": 6.0}}
    gram = {"measure": "gram", "cols": 8, "tokens": 8, "dtype": "bf16", "seconds": 1.0,
            "relative_error": 0.5}
    found = goals.failures(results_of(case({10: 0.01}, off), gram,
                                      {"measure": "preset", "error": "no memory"}))
    assert len(found) == 3 and "no memory" in found[0] and "PyTorch" in found[1]
    nan = case({10: 0.01}, {"fp32": {**off["fp32"], "relaxed_loss": float("nan")}})
    assert len(goals.failures(results_of(nan))) == 1


def test_gram_and_parallel_goals():
    gram = {"measure": "gram", "cols": 1000, "tokens": 1000, "dtype": "bf16", "seconds": 1e-3,
            "relative_error": 0.0}  # 2e9 flops in a millisecond
    ceilings = {"gemm_flops_per_second": {"bf16": 4e12},
                "upload_bytes_per_second": {"pageable": 4e9}}  # 2 MB: half a millisecond
    found = goals._gram(results_of(gram, ceilings=ceilings))
    assert found[0]["value"] == pytest.approx(0.5) and found[0]["met"] is False
    assert "upload alone: 50%" in found[0]["note"]
    parallel = {"measure": "parallel", "rows": 1024, "cols": 4096, "engines": 4,
                "iterations": 200, "together_seconds": 0.1}
    found = goals._parallel(results_of(case({200: 0.08}), parallel), (4096, 4096))
    assert found[0]["value"] == pytest.approx(0.8) and found[0]["met"] is False


def test_report_has_every_table():
    results = results_of(case({10: 0.01, 2000: 0.4}), gpu_result=True, device="cuda",
                         left_out=["x"], failures=["y"], peer_skipped="--no-peer",
                         engine={"name": "cuda:0"})
    results["goals"] = goals.all_goals(results, cases.CHECK)
    text = report.text(results)
    assert "ms/iteration" in text and "Left out for lack of time" in text and "FAILED" in text
    assert "NOT A GPU RESULT" not in text


def test_parts_of_a_plan_are_the_whole():
    every = cases.all_cases(cases.CHECK)
    goal, rest = cases.part_of(every, "goal"), cases.part_of(every, "rest")
    assert goal + rest == every and {shape for shape, _ in goal} == {cases.CHECK.goal_shape}
    assert {request["measure"] for _, request in goal} == {"iterations", "forms"}
    assert len(goal) == 3 + 12


def test_captures_that_failed_are_failures():
    results = results_of(case({10: 0.01}, capture_failures=2))
    assert goals.failures(results) == ["2 captures of the iteration failed: iterations "
                                       "unstructured:0.6"]
