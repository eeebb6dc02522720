"""script/gpu-check's parts where there is no GPU: what it makes of programs that fail, of
sanitizers, of machines that lack something."""
import json
import stat
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path[:0] = [str(ROOT / "script"), str(ROOT / "core/benchmarks")]
from gpu_check import check, gtests, libraries, machine, report, service, steps  # noqa: E402

LISTING = """Suite/Shapes.
  Case/cuda_float64_4x8_2_4_F32  # GetParam() = (3, 16-byte object)
  Case/cuda_float64_4096x4096_F32
Manners.
  Stops/cuda_float32
"""


def program(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_test(folder, body, seconds=30):
    """A program that lists LISTING, and otherwise does `body`."""
    listing = folder / "listing"
    listing.write_text(LISTING)
    program(folder / "fake_test", f"""case "$*" in *--gtest_list_tests*) cat {listing}; exit;; esac
for flag; do case $flag in --gtest_output=json:*) report=${{flag#*json:}};; esac; done
{body}
""")
    return {"name": "fake_test_gpu", "program": "fake_test", "arguments": ["--gtest_filter=*cuda*"],
            "seconds": seconds}


def fake_tests(folder, body, **options):
    return gtests.Tests(folder, [fake_test(folder, body, **options)], "cuda", {"PATH": "/bin"})


def gtest_report(*cases):
    return json.dumps({"testsuites": [{"name": "Suite", "testsuite": list(cases)}]})


RAN = {"name": "a", "status": "RUN", "result": "COMPLETED"}


def test_cases_and_arguments(tmp_path):
    tests = fake_tests(tmp_path, "exit 1")
    (test,) = tests._tests
    assert tests.cases(test) == ["Suite/Shapes.Case/cuda_float64_4x8_2_4_F32",
                                 "Suite/Shapes.Case/cuda_float64_4096x4096_F32",
                                 "Manners.Stops/cuda_float32"]
    small = {name for _, names in tests.small_cases() for name in names}
    assert small == {"Suite/Shapes.Case/cuda_float64_4x8_2_4_F32", "Manners.Stops/cuda_float32"}
    other = gtests.Tests(tmp_path, [test], "cpu", {})
    assert other._tests[0]["arguments"] == ["--gtest_filter=*cpu*"]


def test_small_cases_are_of_every_kind_in_turn(tmp_path, monkeypatch):
    shapes = [f"Shapes.Case/cuda_{rows}x{cols}_{pattern}_F32" for rows, cols in ((1, 1), (5, 64))
              for pattern in ("2_4", "per_row")]
    monkeypatch.setattr(gtests.Tests, "cases", lambda self, test: {
        "a": shapes, "b": ["Manners.One/cuda", "Manners.Two/cuda", "Slow.OfManyThreads/cuda"]}[
            test["name"]])
    tests = gtests.Tests(tmp_path, [{"name": "a"}, {"name": "b"}], "cuda", {})
    chunks = [(test["name"], names) for test, names in tests.small_cases()]
    assert [name for name, _ in chunks][:2] == ["a", "b"]
    # both patterns, first on a layer whose columns groups divide, then the other shape
    assert chunks[0][1][:2] == [shapes[2], shapes[1]] or chunks[0][1][:2] == [shapes[2], shapes[3]]
    assert chunks[1][1] == ["Manners.One/cuda", "Manners.Two/cuda"]


def test_passed_and_skipped_tests_are_counted(tmp_path):
    skipped = {**RAN, "name": "b", "result": "SKIPPED"}
    body = f"echo '{gtest_report(RAN, skipped)}' > $report"
    facts = fake_tests(tmp_path, body).run_all(30, 1)
    assert (facts["passed_tests"], facts["skipped_tests"], facts["wrong"]) == (1, 1, [])


@pytest.mark.parametrize("body, words", [
    ("echo '" + gtest_report({**RAN, "failures": [{"failure": "2 is not 3"}]})
     + "' > $report; exit 1", "fake_test_gpu: Suite.a: 2 is not 3"),
    ("echo out of order >&2; exit 139", "status 139: out of order"),
    ("echo '" + gtest_report() + "' > $report", "no test ran")])
def test_what_fails_is_named(tmp_path, body, words):
    with pytest.raises(steps.StepFailed, match=words):
        fake_tests(tmp_path, body).run_all(30, 1)


def test_a_test_that_hangs_is_ended(tmp_path):
    body = "echo '[       OK ] Suite.a'; echo '[ RUN      ] Suite.b'; exec sleep 60"
    with pytest.raises(steps.StepFailed, match="1 tests passed, .* than 1 s, in Suite.b"):
        fake_tests(tmp_path, body, seconds=1).run_all(30, 1)


def sanitize(folder, said, code=0, seconds=20):
    sanitizer = program(folder / "compute-sanitizer", f"cat <<'END'\n{said}\nEND\nexit {code}\n")
    return fake_tests(folder, "").sanitize(str(sanitizer), "memcheck", seconds)


def test_sanitizer_without_errors(tmp_path):
    facts = sanitize(tmp_path, "========= ERROR SUMMARY: 0 errors")
    assert facts == {"cases": 2, "cases_wanted": 2}
    sanitize(tmp_path, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)")


@pytest.mark.parametrize("said, code, words", [
    ("========= Invalid write\n========= ERROR SUMMARY: 2 errors", 97, "2 errors: .*Invalid write"),
    ("========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)", 0, "1 errors"),
    ("========= Error: Device not supported", 1, "status 1: .*Device not supported"),
    ("nothing at all", 0, "status 0: nothing at all")])  # it checked nothing
def test_sanitizer_with_errors(tmp_path, said, code, words):
    with pytest.raises(steps.StepFailed, match=words):
        sanitize(tmp_path, said, code)


def test_sanitizer_that_is_through_with_nothing(tmp_path):
    slow = program(tmp_path / "compute-sanitizer", "exec sleep 60\n")
    with pytest.raises(steps.StepFailed, match="none of 2 cases"):
        fake_tests(tmp_path, "").sanitize(str(slow), "racecheck", 2)


def test_steps_keep_their_limits_and_go_on_after_a_failure():
    said = []
    running = steps.Steps(100, said.append)
    assert running.run("good", 5, lambda seconds: (f"{seconds:.0f} s", {"found": 1}))
    assert not running.run("bad", 5, lambda seconds: 1 / 0)

    def skip(seconds):
        raise steps.StepSkipped("--no-sanitizer")
    assert running.run("left out", 5, skip)
    assert [step["outcome"] for step in running.done] == ["passed", "failed", "skipped"]
    assert running.done[0]["detail"] == "5 s" and running.done[0]["found"] == 1
    assert "ZeroDivisionError" in running.done[1]["detail"]
    assert not running.passed()
    late = steps.Steps(0, said.append)
    assert not late.run("late", 5, lambda seconds: ("never", {}))
    assert late.done[0]["detail"] == "no time was left for it"


def test_all_steps_fit_the_total():
    for limits in (check.LIMITS, check.QUICK_LIMITS):
        assert sum(limits.values()) <= check.TOTAL_SECONDS < 600


@pytest.mark.parametrize("name, along", [
    ("libc.so.6", False), ("libm.so.6", False), ("ld-linux-x86-64.so.2", False),
    ("libmvec.so.1", False), ("libnss_files.so.2", False), ("libcuda.so.1", False),
    ("libcublas.so.13", False), ("libcublasLt.so.13", False), ("libcudart.so.13", False),
    ("libstdc++.so.6", True), ("libgcc_s.so.1", True), ("libcares.so.2", True),
    ("libopenblas.so.0", True), ("libcrypto.so.3", True), ("libcurl.so.4", True)])
def test_which_libraries_come_along(name, along):
    assert bool(libraries.comes_along(name)) is along


def test_glibc(monkeypatch):
    assert machine.glibc_too_old("2.4") is None  # by number: 2.36 is newer than 2.4
    assert "needs glibc 9.9" in machine.glibc_too_old("9.9")


def test_gpu_metrics_of_the_service_step():
    text = ('# TYPE sparsefw_gpu_power_watts gauge\n'
            'sparsefw_gpu_power_watts{device="cuda:0"} 102.5\n'
            'sparsefw_gpu_memory_bytes{device="cuda:0",kind="used"} 1.5e+09\n'
            'sparsefw_tensors 3\n')
    assert service.gpu_metrics_in(text) == {
        'power_watts{device="cuda:0"}': 102.5,
        'memory_bytes{device="cuda:0",kind="used"}': 1.5e9}
    assert service.gpu_metrics_in("sparsefw_tensors 3\n") == {}


def test_loss_and_counts_of_the_service_step():
    weight, gram = [[1.0, 2.0], [3.0, -1.0]], [[2.0, 0.5], [0.5, 1.0]]
    mask = [[1, 0], [0, 0]]
    # (0, 2): 4 * 1; (3, -1): 9 * 2 - 3 * 0.5 * 2 + 1
    assert service.loss(weight, gram, mask) == 4 + 16
    assert service.check_counts([[1, 1, 0, 0, 0, 1, 0, 1]], "2:4") is None
    assert "2:4" in service.check_counts([[1, 1, 1, 0, 0, 1, 0, 0]], "2:4")
    assert service.check_counts([[1, 1, 0, 0, 0]] * 2, "per-row") is None
    assert service.check_counts([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "per-row")
    assert service.check_counts([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "unstructured") is None


def test_tensors_of_the_fixture():
    tensors = service.read_safetensors(
        ROOT / f"tests/fixtures/minilm/{service.SMALL}.safetensors")
    shape, values = tensors[f"{service.SMALL}.weight"]  # float16
    assert shape == [384, 384] and len(values) == 384**2 and 0 < max(values) < 10
    gram = service.rows_of(*tensors["gram"])
    assert gram[3][5] == gram[5][3] and gram[7][7] > 0


def result_of(**changes):
    losses = {"lower_bound": 1.0, "final": 2.0, "warm_start": 3.0}
    return {"state": "SUCCEEDED", "device": "cuda:0", "losses": losses, **changes}


@pytest.mark.parametrize("changes, words", [
    ({"state": "FAILED"}, "ended as FAILED"),
    ({"device": "cpu"}, "ran on cpu, not on cuda:0"),
    ({"losses": {"lower_bound": 5.0, "final": 2.0, "warm_start": 3.0}}, "bound <= loss")])
def test_results_that_break_a_promise(changes, words):
    class server:
        device = "cuda:0"
    with pytest.raises(steps.StepFailed, match=words):
        service.check(result_of(**changes), [[1, 1, 0, 0]], {}, ("x", "2:4", ()), server)
    assert service.check(result_of(), [[1, 1, 0, 0]], {}, ("x", "2:4", ()), server) is False


def test_report_says_what_failed_and_on_what():
    host = {"processor": "P", "cores": 2, "system": "S", "glibc": "2.36"}
    gpu = {"devices": [{"name": "G", "memory_bytes": 2**33, "capability": "9.0"}], "driver": "580",
           "cuda": "13.0", "toolkit": "T"}
    assert "G, 8 GiB, compute capability 9.0" in report.machine_lines({"host": host, "gpu": gpu})[0]
    step = {"name": "tests", "outcome": "failed", "seconds": 1.0, "detail": "because"}
    text = report.text({"gpu_result": False, "device": "cpu", "figures": None, "steps": [step],
                        "passed": False, "seconds": 1.0, "commit": "c"})
    assert text.startswith("NOT A GPU RESULT") and "FAILED" in text and "because" in text


def test_without_a_gpu_nothing_is_measured(tmp_path):
    if "error" not in machine.probe():
        pytest.skip("there is a GPU here")
    done = subprocess.run([str(ROOT / "script/gpu-check"), "run", "--out", str(tmp_path / "out")],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "no GPU here, nothing was measured" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["walk"], ["run", "--fast"], ["bundle", "a", "b"]])
def test_usage(arguments, monkeypatch):
    if arguments[0] == "bundle":
        command = [sys.executable, str(ROOT / "script/gpu_check"), *arguments]  # builds nothing
    else:
        command = [str(ROOT / "script/gpu-check"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr.lower()
