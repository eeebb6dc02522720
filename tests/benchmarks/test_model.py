"""A model through a server: on the CPU with a real one, and the arithmetic of what it tells."""
import dataclasses
import json
import stat
import subprocess
import sys

import pytest
from conftest import ROOT
from gpu import cases, goals, model_figures, report
from gpu.model_run import ModelRun, job_flags
from harness.process import ProgramError
from harness.server_program import PeakMemory, metrics_in
from support.processes import HANG

(_, REQUEST), = cases.model_cases(cases.SMOKE, streams=2)


def suite(bin_folder, *arguments):
    return subprocess.run([sys.executable, str(ROOT / "core/benchmarks/gpu"), "--bin",
                           str(bin_folder), *map(str, arguments)],
                          capture_output=True, text=True, check=False)


@pytest.fixture
def model(bin_folder, tmp_path):
    def run(command, seconds):
        subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=seconds)
    running = ModelRun(bin_folder, "cpu", cases.SMOKE, 2, tmp_path, lambda line: None, run, HANG)
    yield running
    running.close()
    assert running._server._process.poll() == 0  # it drained


def test_every_job_of_the_blocks_runs_and_tells_its_times(model):
    result = {**REQUEST, **model.case(REQUEST, HANG)}
    assert (result["slots"], result["unfinished"], len(result["jobs"])) == (2, 0, 6)
    assert sorted((job["block"], job["layer"]) for job in result["jobs"]) == [
        (block, layer) for block in (0, 1) for layer in ("down", "gate", "q")]
    for job in result["jobs"]:
        assert 0 <= job["started"] <= job["ended"] <= model_figures.wall_seconds(result)
        # They had to wait for what held the streams; that is no part of their own time.
        assert job["queue_seconds"] > 0 and job["device"] == "cpu"
        assert 0 < job["solve_seconds"] <= job["run_seconds"]
        assert 0 < job["iterations"] < 2000  # the gap stopped it
    assert result["memory"]["resident_bytes"] >= result["memory"]["anonymous_bytes"] > 0
    assert "reserved_bytes" not in result["memory"]  # the CPU is no device of the pool
    # Two shapes, two Grams, and no pruned weight of any job.
    uploads = {tuple(sorted(labels.items())): value for name, labels, value
               in model._server.metrics() if name == "tensors"}
    assert uploads == {(): 4 + 2 + 2 + 6}  # W and G; masks of warm-ups, holders and jobs


def test_what_there_is_no_time_for_is_counted_and_cancelled(model):
    endless = {**REQUEST, "schedule": "paper", "rule": "open-loop", "rel_gap": 0,
               "iterations": 10**12}
    cut = model.case(endless, 6)
    assert cut["jobs"] == [] and cut["unfinished"] == 6
    assert goals.failures({"cases": [{**endless, **cut}], "only_model": True}) == [
        "model paper: no job ended in 30 s"]
    assert len(model.case(REQUEST, HANG)["jobs"]) == 6  # the streams are free again


def test_a_server_that_ends_is_one_error(bin_folder, tmp_path):
    def run(command, seconds):
        subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=seconds)
    running = ModelRun(bin_folder, "cpu", cases.SMOKE, 2, tmp_path, lambda line: None, run, HANG)
    running._server._process.kill()
    running._server._process.wait()
    with pytest.raises(ProgramError, match="sparsefw-server ended with status -9"):
        running.case(REQUEST, HANG)
    running.close()


def test_a_server_that_cannot_start(bin_folder, tmp_path):
    for program in bin_folder.iterdir():
        if program.name != "sparsefw-server":
            (tmp_path / program.name).symlink_to(program)
    server = tmp_path / "sparsefw-server"
    server.write_text(f"#!/bin/sh\necho x >> {tmp_path}/starts\n"
                      "echo 'sparsefw-server: no room for the spool' >&2; exit 1\n")
    server.chmod(server.stat().st_mode | stat.S_IXUSR)
    out = tmp_path / "results.json"
    done = suite(tmp_path, "--plan", "smoke", "--device", "cpu", "--model", "--out", out)
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    words = "sparsefw-server ended with status 1: sparsefw-server: no room for the spool"
    failures = json.loads(out.read_text())["failures"]
    assert len(failures) == 2 and all(words in failure for failure in failures)
    assert (tmp_path / "starts").read_text() == "x\n"  # not tried again for the other schedule


def test_a_job_that_fails_is_named(model):
    with pytest.raises(ProgramError, match="jobs/1 ended as FAILED: INTERNAL: lost"):
        model._ended["jobs/1"] = {"state": "FAILED", "error": "INTERNAL: lost"}
        model._must_have_ended_well(["jobs/1"])


def test_list_says_what_would_run(tmp_path):
    every = suite(tmp_path, "--list", "--model", "--streams", "7").stdout.splitlines()
    assert len(every) == 2
    assert all("model 224 layers through a server" in line and "streams=7" in line
               for line in every)
    plain = suite(tmp_path, "--list", "--plan", "check").stdout
    assert plain.count("model 14 layers through a server gap") == 1


def test_usage(tmp_path):
    done = suite(tmp_path, "--list", "--streams", "0")
    assert done.returncode == 2 and "--streams" in done.stderr


def test_flags_of_a_job():
    flags = job_flags(REQUEST)
    assert flags[:4] == ["--pattern", "unstructured", "--sparsity", "0.6"]
    assert flags[-2:] == ["--rel-gap", 0.01] and "line-search" in flags
    paper = {**REQUEST, **cases.SOLVES["paper"], "rel_gap": None, "pattern": "2:4"}
    assert job_flags(paper)[:2] == ["--pattern", "2:4"] and "--rel-gap" not in job_flags(paper)
    assert job_flags({**REQUEST, "pattern": "per_row:0.5"})[1] == "per-row"


def job(layer, block, started, ended, **changes):
    return {"layer": layer, "block": block, "rows": 4, "cols": 8, "device": "cuda:0",
            "started": started, "ended": ended, "run_seconds": ended - started,
            "solve_seconds": (ended - started) / 2, "queue_seconds": started, "iterations": 50,
            **changes}


def model_case(*jobs, blocks=2, unfinished=0, **changes):
    return {"measure": "model", "schedule": "gap", "blocks": blocks, "layers": 2 * blocks,
            "jobs": list(jobs), "unfinished": unfinished, "slots": 2, "prepare_seconds": 1.0,
            "submit_seconds": 2.0, "memory": {}, "seconds": 60, **changes}


TWO_BLOCKS = (job("q", 0, 0, 2), job("down", 0, 0, 6), job("q", 1, 2, 6), job("down", 1, 6, 10))


def test_times_by_layer():
    case = model_case(*TWO_BLOCKS)
    assert model_figures.wall_seconds(case) == 10
    assert model_figures.jobs_per_minute(case) == 24
    layers = model_figures.by_layer(case)
    assert list(layers) == ["q", "down"]
    assert layers["q"]["run"] == (3, 2, 4) and layers["q"]["solve"] == (1.5, 1, 2)
    assert layers["down"]["queue"] == (3, 0, 6) and layers["down"]["jobs"] == 2
    assert model_figures.wall_seconds(model_case()) is None
    assert model_figures.jobs_per_minute(model_case()) is None


def test_the_whole_model_from_all_or_from_some():
    def whole(case, blocks):
        return model_figures.whole_seconds(case, ["q", "down"], blocks)
    assert whole(model_case(*TWO_BLOCKS), 2) == (10, 4)
    # 16 times the work of the two blocks, as many jobs at once
    assert whole(model_case(*TWO_BLOCKS), 32) == (pytest.approx(160), 4)
    # q of 3 s, down of 6 s: 18 s of work for two blocks, of which 12 s were done in 6 s
    assert whole(model_case(*TWO_BLOCKS[:3], unfinished=1), 2) == (pytest.approx(9), 3)
    assert whole(model_case(TWO_BLOCKS[0], unfinished=3), 2) == (None, 1)


PLAN = dataclasses.replace(cases.SMOKE, block=(("q", (4, 8)), ("down", (8, 4))))


def one_goal(results, words):
    (found,) = [goal for goal in goals._model(results, PLAN) if words in goal["what"]]
    return found


def test_goals_rest_on_the_server_where_it_ran():
    some = {"cases": [model_case(*TWO_BLOCKS)]}
    found = one_goal(some, "gap stop")
    assert found["what"].startswith("all 64 linear layers") and found["met"] is False
    assert found["value"] == pytest.approx(160)
    assert found["note"] == "s through a server, EXTRAPOLATED from 4 jobs, 2 at once"
    assert len(goals._model(some, PLAN)) == 1  # that of the plan's schedule
    every = {**some, "only_model": True}
    assert one_goal(every, "2000 iterations")["note"] == "it was not measured"
    jobs = [job(layer, block, block, block + 1) for block in range(32) for layer in ("q", "down")]
    found = one_goal({"cases": [model_case(*jobs, blocks=32)]}, "gap stop")
    assert found["value"] == 32 and found["met"] is True
    assert found["note"] == "s through a server, all 64 solved, 2 at once"
    cut = model_case(TWO_BLOCKS[0], unfinished=3)
    assert "too few" in one_goal({"cases": [cut]}, "gap stop")["note"]


def test_report_of_a_model():
    memory = {"reserved_bytes": {"cuda:0": 2**31}, "budget_bytes": {"cuda:0": 2**33},
              "used_bytes": {"cuda:0": 3 * 2**30}, "resident_bytes": 2**30,
              "anonymous_bytes": 2**29}
    text = report.model_part(model_case(*TWO_BLOCKS, memory=memory))
    assert "4 of 4 jobs (2 blocks), 2 at once: 10 s" in text and "24 jobs a minute" in text
    assert "cuda:0 2.00 GiB reserved by jobs of 8.00 GiB, cuda:0 3.00 GiB used in all" in text
    assert "server 1.00 GiB resident, of it 0.50 GiB not of files" in text
    assert "NO TIME" not in text
    cut = report.model_part(model_case(unfinished=4))
    assert "NO TIME was left for 4 jobs" in cut and "peak memory: not known" in cut


METRICS = """# TYPE sparsefw_device_memory_used_bytes gauge
sparsefw_device_memory_used_bytes{device="cuda:0"} %d
sparsefw_device_memory_budget_bytes{device="cuda:0"} 9e+09
sparsefw_gpu_memory_used_bytes{device="cuda:0"} 5e+09
sparsefw_gpu_memory_capacity_bytes{device="cuda:0"} 8e+10
sparsefw_tensors 3
other_total 1
"""


def test_peaks_are_the_largest_sample_of_each():
    class Server:
        """Its metrics cannot be had: only what the test adds counts."""
        def forget_peak(self):
            pass

        def metrics(self, seconds):
            raise ConnectionRefusedError
    memory = PeakMemory(Server())
    for used in (7, 900, 30):
        memory.add(metrics_in(METRICS % used), {"VmHWM": used, "RssAnon": 5})
    peaks = memory.stop()
    assert peaks == {"reserved_bytes": {"cuda:0": 900}, "budget_bytes": {"cuda:0": 9 * 10**9},
                     "used_bytes": {"cuda:0": 5 * 10**9}, "resident_bytes": 900,
                     "anonymous_bytes": 5, "samples": 3}
    assert ("tensors", {}, 3.0) in metrics_in(METRICS % 1)


def test_the_layers_of_the_model():
    assert cases.BLOCKS * len(cases.LLAMA_BLOCK) == 224
    assert cases.FULL.layers_by_shape() == {(4096, 4096): 2, (1024, 4096): 2, (14336, 4096): 2,
                                            (4096, 14336): 1}
    # layers of the same inputs share one Gram matrix
    assert {shape[1] for _, shape in cases.LLAMA_BLOCK} == {4096, 14336}
