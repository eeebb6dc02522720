"""Faults in a run of script/gpu-check on the emulated device: each still yields a full report
that names it. The programs are the real ones; a script around one of them puts the fault in."""
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gpu_check import parts, runner, summary
from support.processes import wait_until

SMOKE, DEVICE = "sparsefw-bench-smoke", "sparsefw-bench-device"
CHECK = ROOT / "core/benchmarks/gpu_check"
# Sets a fault of the emulated device for one part of the smoke program only.
FOR_PART = 'case "$*" in *"--part {part} "*) export {fault};; esac'


@pytest.fixture
def programs(bin_folder, tmp_path):
    """A folder with the real programs, those of the emulated device among them."""
    tests = bin_folder.parent / "tests"
    if not (tests / "sparsefw-bench-smoke-on-host").exists():
        pytest.skip("the emulated device is not built")
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in bin_folder.glob("sparsefw-*"):
        (folder / program.name).symlink_to(program)
    (folder / SMOKE).unlink(missing_ok=True)
    (folder / SMOKE).symlink_to(tests / "sparsefw-bench-smoke-on-host")
    return folder


def wrap(programs, name, script):
    """Replaces a program by a script; $REAL is the program."""
    real = (programs / name).resolve()
    (programs / name).unlink()
    (programs / name).write_text(f'#!/bin/sh\nREAL={real}\n{script}\nexec $REAL "$@"\n')
    (programs / name).chmod(0o755)


def command(programs, out, *arguments):
    return [sys.executable, str(CHECK), "run", "--plan", "smoke", "--no-peer", "--bin",
            str(programs), "--out", str(out), *map(str, arguments)]


def environment(bin_folder):
    module = bin_folder.parent / "tests/libsparsefw_cuda_module_on_host.so"
    return {**os.environ, "SPARSEFW_CUDA_MODULE": str(module)}


def check(programs, bin_folder, *arguments):
    """(exit status, result, summary). Whatever happened, the report is there and short."""
    out = programs.parent / "out"
    done = subprocess.run(command(programs, out, *arguments), capture_output=True, text=True,
                          check=False, env=environment(bin_folder))
    return (done.returncode, *report_of(done.stdout, out))


def report_of(said, out):
    result = json.loads((out / "gpu-check.json").read_text())
    end = said[said.index("==== gpu-check"):]
    assert len(end.encode()) <= 4096 and "parts:" in end
    for failure in summary.failures(result)[:3]:
        assert " ".join(failure.split())[:120] in end
    return result, end


def step(result, name):
    (found,) = [one for one in result["steps"] if one["name"] == name]
    return found


def failed(result, name):
    return {one["item"]: one["detail"] for one in step(result, name)["items"] if one["ok"] is False}


def test_without_a_fault_everything_passes(programs, bin_folder):
    status, result, end = check(programs, bin_folder, "--only", "smoke,goal", "--scale", 4)
    assert status == 0, end
    assert result["passed"] and result["complete"] and not result["gpu_result"]
    assert "NOT A GPU RESULT" in end and "emulated" in result["machine"]["device"]
    names = [one["item"] for one in step(result, "smoke")["items"]]
    assert len(names) == len(set(names)) > 55
    for kernel in ("update by rows", "select", "capture", "steps of a sweep", "matching of rows", "step without"):
        assert any(kernel in name for name in names), kernel
    assert "ms an iteration over" in end


@pytest.mark.parametrize("breaking", ["missing", "format", "not_executable"])
def test_a_program_that_does_not_start(programs, bin_folder, breaking):
    (programs / SMOKE).unlink()
    if breaking != "missing":
        (programs / SMOKE).write_bytes(b"\x7fELF not really")
        (programs / SMOKE).chmod(0o755 if breaking == "format" else stat.S_IRUSR)
    # Ten times the limits: a busy machine leaves no case out of the goal.
    status, result, _ = check(programs, bin_folder, "--only", "smoke,goal",
                              "--device", "cpu", "--scale", 10)
    assert status == 1
    assert SMOKE in failed(result, "smoke"), step(result, "smoke")
    assert "does not start" in failed(result, "smoke")[SMOKE]
    assert step(result, "goal")["outcome"] == "passed"


def test_a_hang_costs_its_own_limit_and_is_named(programs, bin_folder):
    wrap(programs, SMOKE, FOR_PART.format(part="iteration-2:4",
                                          fault="SPARSEFW_CUDA_ON_HOST_HANG=5"))
    # Three times the limits: on a busy machine only the part that hangs reaches one.
    status, result, _ = check(programs, bin_folder, "--only", "smoke", "--scale", 3)
    (item, detail), *more = failed(result, "smoke").items()
    assert status == 1 and not more
    assert item == "iteration-2:4: 2:4 float32 pruned" and "took longer than" in detail
    after = [one["item"] for one in step(result, "smoke")["items"]]
    assert any(name.startswith("capture") for name in after)


def test_a_part_that_hangs_is_ended(programs, bin_folder):
    wrap(programs, DEVICE, "exec sleep 600")
    status, result, end = check(programs, bin_folder, "--only", "goal,service", "--scale", 0.05,
                                "--device", "cpu")
    assert status == 1 and failed(result, "goal")
    assert step(result, "goal")["seconds"] < 30
    assert step(result, "service")["items"]  # the next part ran
    assert "goal" in end


def test_a_sticky_error_is_named_and_stays_in_its_process(programs, bin_folder):
    wrap(programs, SMOKE, FOR_PART.format(part="iteration-unstructured:0.6",
                                          fault="SPARSEFW_CUDA_ON_HOST_FAULT=0:200"))
    status, result, _ = check(programs, bin_folder, "--only", "smoke")
    found = failed(result, "smoke")
    assert status == 1
    assert any("illegal" in detail.lower() for detail in found.values())
    assert all("iteration-unstructured" in item for item in found), found
    assert len(step(result, "smoke")["items"]) > 45


def test_a_sticky_error_in_a_benchmark_restarts_its_program(programs, bin_folder):
    """The first process of the measuring program loses its device; the next cases get another."""
    flag = programs.parent / "once"
    wrap(programs, DEVICE, f'case "$*" in *--layer*) [ -e {flag} ] || {{ : > {flag}; '
                           "export SPARSEFW_CUDA_ON_HOST_FAULT=0:300; };; esac")
    status, result, _ = check(programs, bin_folder, "--only", "goal", "--scale", 2)
    assert status == 1
    (failure,) = failed(result, "goal").values()
    assert "iterations 64x48" in failure and "illegal" in failure.lower()
    figures = json.loads(Path(result["files"]["goal"]).read_text())
    assert len(figures["cases"]) == 15
    assert sum("error" in case for case in figures["cases"]) == 1


def test_an_item_that_failed_is_all_that_its_program_says(programs, bin_folder):
    """Its status of 1 is no second failure."""
    line = json.dumps({"item": "replays", "ok": False, "detail": "20 replays took 0 iterations"})
    wrap(programs, SMOKE, f"case \"$*\" in *'--part capture '*) echo '{line}'; exit 1;; esac")
    status, result, end = check(programs, bin_folder, "--only", "smoke")
    assert status == 1 and not result["passed"] and result["complete"]
    assert failed(result, "smoke") == {"capture: replays": "20 replays took 0 iterations"}
    assert "capture: replays" in end and "20 replays took 0 iterations" in end
    assert step(result, "smoke")["items"][-1]["item"].startswith("joint")  # the next parts ran


# ncu as far as the emulated device can stand in for it: every launch, with its kernel's name.
NCU = '''#!{python}
import collections, os, re, subprocess, sys
program = next(i for i, word in enumerate(sys.argv) if word.endswith("sparsefw-bench-smoke"))
names = sys.argv[sys.argv.index("--kernel-name") + 1].removeprefix("regex:")
log = sys.argv[0] + ".launches"
open(log, "w").close()
done = subprocess.run(sys.argv[program:], env={{**os.environ, "SPARSEFW_CUDA_ON_HOST_KERNELS": log}})
symbols = collections.defaultdict(dict)
print('"ID","Kernel Name","gpu__time_duration.sum"')
print('"","","us"')
for number, line in enumerate(open(log)):
    file, offset = line.split()
    if not symbols[file]:
        listed = subprocess.run(["nm", "-C", file], capture_output=True, text=True, check=True)
        for symbol in listed.stdout.splitlines():
            address, _, name = symbol.partition(" ")
            if address.strip():
                symbols[file][int(address, 16)] = name[2:]
    name = symbols[file][int(offset, 16)]
    if re.search(names, name) and "{hidden}" not in name:
        print(f'"{{number}}","{{name}}","1.5"')
sys.exit(done.returncode)
'''


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """Puts an ncu on the PATH, which does not see the kernel that is named."""
    def put(hidden="-"):
        folder = tmp_path / "ncu"
        folder.mkdir()
        (folder / "ncu").write_text(NCU.format(python=sys.executable, hidden=hidden))
        (folder / "ncu").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return put


def test_every_kernel_that_matters_is_profiled(programs, bin_folder, ncu):
    ncu()
    status, result, end = check(programs, bin_folder, "--only", "ncu", "--scale", 3)
    assert status == 0, end
    found = {one["item"]: one["detail"] for one in step(result, "ncu")["items"]}
    assert list(found) == [name for names in parts.NCU_KERNELS.values() for name in names]
    for detail in found.values():
        launches, words = detail.split(" ", 1)
        # Few: each is run several times over by ncu, between copies of what it changes.
        assert 1 <= int(launches) <= 60 and words == "launches profiled, 1.5 us each"
    assert {path.name for path in (programs.parent / "out").glob("ncu*")} == {
        "ncu-iteration-unstructured-0.6.csv", "ncu-iteration-2-4.csv"}


def test_a_kernel_that_is_not_profiled_is_named(programs, bin_folder, ncu):
    ncu(hidden="WindowKernel")
    status, result, _ = check(programs, bin_folder, "--only", "ncu", "--scale", 3)
    assert status == 1
    assert failed(result, "ncu") == {"WindowKernel": "0 launches profiled"}


def test_a_profiled_program_that_dies_is_named(programs, bin_folder, ncu):
    ncu()
    wrap(programs, SMOKE, FOR_PART.format(part="iteration-2:4",
                                          fault="SPARSEFW_CUDA_ON_HOST_FAULT=0:50"))
    status, result, _ = check(programs, bin_folder, "--only", "ncu", "--scale", 3)
    assert status == 1
    assert "illegal" in failed(result, "ncu")["ncu iteration-2:4"].lower()
    assert {one["item"] for one in step(result, "ncu")["items"] if one["ok"]} == set(
        parts.NCU_KERNELS["iteration-unstructured:0.6"])


def started(process):
    """Lines of a running check until its first part says something."""
    said = ""
    for line in process.stdout:
        said += line
        if "smoke: device" in line:
            return said
    raise AssertionError(said)


@pytest.fixture
def running(programs, bin_folder):
    wrap(programs, SMOKE, FOR_PART.format(part="iteration-unstructured:0.6",
                                          fault="SPARSEFW_CUDA_ON_HOST_HANG=3"))
    out = programs.parent / "out"
    process = subprocess.Popen(command(programs, out, "--only", "smoke,goal,service"), text=True,
                               stdout=subprocess.PIPE, env=environment(bin_folder))
    yield process, started(process), out
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_is_cut_off_reports_what_it_has(running, number):
    process, said, out = running
    process.send_signal(number)
    said += process.stdout.read()
    assert process.wait() == 1
    result, end = report_of(said, out)
    assert not result["complete"] and not result["passed"]
    assert step(result, "smoke")["items"][0]["ok"]
    assert f"cut off by {number.name}" in " ".join(failed(result, "smoke").values())
    for name in ("goal", "service"):
        assert failed(result, name) == {name: f"not run: {number.name}"}
    assert number.name in end


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def began(process):
    """When a process began, in ticks; None where there is none, or it has ended."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if state == "Z" else fields[18]


def hangs(process):
    """It waits in pause(), for ever."""
    try:
        return Path(f"/proc/{process}/syscall").read_text().split()[0] == "34"
    except OSError:
        return False


def test_a_part_that_is_killed_is_named_and_the_next_one_runs(running):
    process, said, out = running
    (part,) = children(process.pid)
    programs = wait_until(lambda: {program: began(program) for program in children(part) if hangs(program)},
                          "the program that hangs")
    os.kill(part, signal.SIGKILL)
    while "goal: at most" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGTERM)  # enough was seen
    said += process.stdout.read()
    process.wait()
    result, _ = report_of(said, out)
    assert "the part ended with status -9" in " ".join(failed(result, "smoke").values())
    assert "goal" in [one["name"] for one in result["steps"]]
    # They end with the part, a moment after it; numbers of processes are used again.
    wait_until(lambda: not [program for program, time_of in programs.items()
                            if time_of and began(program) == time_of], "they end")


def test_a_check_that_is_killed_leaves_what_was_known(running):
    process, _, out = running
    process.kill()
    process.wait()
    result = json.loads((out / "gpu-check.json").read_text())
    assert result["steps"][0]["items"] and not result["complete"]


def test_parts_without_time_are_named(programs, bin_folder):
    status, result, _ = check(programs, bin_folder, "--only", "ncu,service", "--total", 1)
    assert status == 1
    assert failed(result, "service") == {"service": "no time was left for it"}


def test_a_signal_before_a_part_has_begun_is_reported_too(tmp_path, capsys):
    options = SimpleNamespace(quick=False, out=tmp_path, device="cuda:0", bin=tmp_path, plan="smoke",
                              no_peer=True, only=["smoke", "goal"], total=60, scale=1,
                              no_sanitizer=False)
    signals = ["SIGTERM"]

    def say(text):
        if "at most" in text and signals:
            raise runner.Interrupted(signals.pop())

    kept = {number: signal.getsignal(number)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        assert not runner.Runner(options, say).run()
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    result, _ = report_of(capsys.readouterr().out, tmp_path)
    assert failed(result, "smoke") == {"smoke": "cut off by SIGTERM"}
    assert failed(result, "goal") == {"goal": "not run: SIGTERM"}
