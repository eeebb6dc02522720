"""Programs as processes: what they say, how they end, and that nothing of them is left."""
import os
import signal
import time

import pytest
from harness import process
from harness.process import LineProgram, ProgramError, TimedOut, json_lines, run
from support.processes import HANG, in_time, wait_until


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def gone(pid):
    """Waits until it is; a kill is not yet an end."""
    wait_until(lambda: not alive(pid), f"{pid} is gone")
    return True


def test_what_ends_well_and_what_does_not():
    assert run(["echo", "out"], HANG).out == "out\n"
    assert run(["sh", "-c", "echo err >&2; exit 3"], HANG, check=False).code == 3
    with pytest.raises(ProgramError, match="ended with status 3: err"):
        run(["sh", "-c", "echo err >&2; exit 3"], HANG)


@pytest.mark.parametrize("make", [
    lambda path: None, lambda path: path.write_text("no program"),
    lambda path: (path.write_bytes(b"\x7fELF not really"), path.chmod(0o755))])
@pytest.mark.parametrize("use", [lambda path: run([path], HANG), lambda path: LineProgram([path], HANG),
                                 lambda path: list(json_lines([path], HANG))])
def test_what_does_not_start_is_a_program_error(tmp_path, make, use):
    path = tmp_path / "program"
    make(path)
    with pytest.raises(ProgramError, match="does not start"):
        use(path)


def test_a_kill_reaches_the_whole_group(tmp_path):
    script = f"echo said; sleep {HANG} & echo $! > {tmp_path}/pid; wait"

    def said_in_time(seconds):
        with pytest.raises(TimedOut) as late:
            run(["sh", "-c", script], seconds)
        return (tmp_path / "pid").exists() and late.value.said

    assert in_time(said_in_time, 0.5) == "said\n"
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_says_nothing_any_more_is_ended_early():
    with pytest.raises(TimedOut):
        run(["sh", "-c", "echo begin; exec sleep 600"], 600, stall=0.5)


def test_lines_come_one_by_one_and_an_end_is_told():
    lines = json_lines(["sh", "-c", "echo '{\"a\": 1}'; echo plain; exit 4"], HANG)
    assert next(lines) == {"a": 1} and next(lines) == {"text": "plain"}
    with pytest.raises(ProgramError, match="ended with status 4"):
        next(lines)


def test_last_lines_are_read_after_the_end(monkeypatch):
    """A busy machine reads them late."""
    read = process._read_lines

    def late(*arguments):
        time.sleep(3 * process.POLL_SECONDS)  # not a limit: the program has ended meanwhile
        read(*arguments)

    monkeypatch.setattr(process, "_read_lines", late)
    assert list(json_lines(["echo", '{"a": 1}'], HANG)) == [{"a": 1}]


def test_a_session_that_makes_processes_meanwhile_is_ended():
    for _ in range(5):
        started = process.start(["sh", "-c", "i=0; while [ $((i += 1)) -le 300 ]; do sleep 600 & done; wait"],
                                start_new_session=True)
        wait_until(lambda: of_session(started.pid) > 1, "it has begun")
        process.kill_session(started.pid)
        started.wait(HANG)
        assert of_session(started.pid) == 0


def of_session(session):
    """How many processes it has."""
    done = run(["ps", "--no-headers", "-s", str(session), "-o", "stat"], HANG, check=False)
    return sum(not line.startswith("Z") for line in done.out.splitlines())


def test_a_session_is_ended_with_its_program(tmp_path):
    """Also what leads a group of its own, as every program of a part does."""
    script = f"set -m; sleep 600 & echo $! > {tmp_path}/pid; echo '{{}}'; exec sleep 600"
    lines = json_lines(["bash", "-c", script], 600)
    next(lines)
    lines.close()
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_pipe_that_outlives_its_program_is_not_waited_for(tmp_path):
    script = f"setsid sleep 600 & echo $! > {tmp_path}/pid; echo '{{}}'"
    assert list(json_lines(["bash", "-c", script], 600)) == [{}]
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_an_error_ends_a_line_program():
    script = 'echo "{}"; while read line; do echo \'{"error": "sticky"}\'; done'
    program = LineProgram(["sh", "-c", script], HANG)
    with pytest.raises(ProgramError, match="sticky"):
        program.ask({}, HANG)
    assert program.ended
