"""Programs as processes with time limits: one run, or an answer for every line of JSON.

Each program leads a process group of its own, which is killed as a whole, and nothing here waits
for ever: not for a program that a hung device holds in the kernel, and not for the pipe of a
grandchild that outlives it.
"""
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
POLL_SECONDS = 0.2
KILLED_SECONDS = 5  # what a killed process may take to end
READ_SECONDS = 2  # what reading its last lines may take after its end
TEXT_LIMIT = 2000


class ProgramError(Exception):
    pass


class TimedOut(ProgramError):
    """`said`: its output so far."""

    def __init__(self, message, said=""):
        super().__init__(message)
        self.said = said


@dataclass
class Done:
    code: int
    out: str
    err: str


def start(command, **options):
    """Popen, as the leader of a new process group. Raises ProgramError where it does not start."""
    words = [str(word) for word in command]
    try:
        return subprocess.Popen(words, **({} if options.get("start_new_session") else GROUP),
                                **options)
    except OSError as error:
        raise ProgramError(f"{words[0]} does not start: {error}") from None


def kill(process, grace=0.0):
    """Kills the process and its group; with `grace`, SIGTERM comes first. False where it does not
    end even so, as a process that the kernel holds."""
    for signum, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED_SECONDS)):
        if signum == signal.SIGTERM and not grace:
            continue
        try:
            os.killpg(process.pid, signum)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            process.wait(seconds)
            if signum == signal.SIGKILL:
                return True
        except subprocess.TimeoutExpired:
            pass
    return False


def kill_session(session):
    """Kills every process of a session, whatever group it is in. One that is not killed yet may make
    another behind the back of a look, so there are looks until one finds none; those that the kernel
    holds are not waited for."""
    end = time.monotonic() + KILLED_SECONDS
    while _kill_those_of(session) and time.monotonic() < end:
        time.sleep(0.01)


def _kill_those_of(session):
    """Whether there were any that had not ended."""
    found = False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found = True
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            pass
    return found


def _text(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def _await(process, seconds, out, stall):
    """False when it is over time, or has written nothing for `stall` seconds."""
    end = time.monotonic() + max(0.0, seconds)
    size, changed = 0, time.monotonic()
    while True:
        now = time.monotonic()
        try:
            process.wait(max(0.0, min(end - now, POLL_SECONDS if stall else end - now)))
            return True
        except subprocess.TimeoutExpired:
            now, found = time.monotonic(), os.fstat(out.fileno()).st_size
            if found != size:
                size, changed = found, now
            if now >= end or (stall and now - changed >= stall):
                return False


def run(command, seconds, environment=None, check=True, stall=None):
    """Done. `check`: ProgramError unless it ends with status 0. Raises TimedOut, also where the
    program has written nothing for `stall` seconds."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                        env=environment)
        try:
            in_time = _await(process, seconds, out, stall)
        finally:
            kill(process)  # and what it left behind
        if not in_time:
            raise TimedOut(f"{command[0]} took longer than {seconds:.0f} s, or hung",
                           _text(out) + _text(err))
        done = Done(process.returncode, _text(out), _text(err))
    if check and done.code != 0:
        said = done.err.strip() or done.out.strip() or "no message"
        raise ProgramError(f"{command[0]} ended with status {done.code}: {said[-TEXT_LIMIT:]}")
    return done


def run_json(bin_folder, name, flags, seconds=86400.0, environment=None):
    """The object that a measuring program prints. flags: {name: value}; lists are joined."""
    command = [str(Path(bin_folder) / name)]
    for flag, value in flags.items():
        text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        command += [f"--{flag}", text]
    return json.loads(run(command, seconds, environment).out)


def json_lines(command, seconds, environment=None, leads_session=True):
    """Yields every object that a program prints, as soon as it is there. The program leads a
    session of its own, which ends with it, or stays in that of the caller, whose end is its end,
    too. Afterwards raises TimedOut, or ProgramError unless it
    ended with status 0. A line that is no JSON is {"text": line}."""
    end, lines = time.monotonic() + seconds, queue.Queue()
    read_until = None  # of what a program that has ended has left
    with tempfile.TemporaryFile() as errors:
        process = start(command, start_new_session=leads_session, stdin=subprocess.DEVNULL, text=True,
                        stdout=subprocess.PIPE, stderr=errors, env=environment, errors="replace")
        try:
            threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
            while True:
                try:
                    line = lines.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    if process.poll() is not None:
                        read_until = read_until or time.monotonic() + READ_SECONDS
                        if time.monotonic() > read_until:
                            break  # whoever still has the pipe is none of ours
                        continue
                    if time.monotonic() > end:
                        raise TimedOut(f"took longer than {seconds:.0f} s") from None
                    continue
                if line is None:
                    break
                try:
                    yield json.loads(line)
                except ValueError:
                    yield {"text": line.rstrip()}
            try:
                process.wait(max(KILLED_SECONDS, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise TimedOut(f"took longer than {seconds:.0f} s") from None
        finally:
            if leads_session:
                kill_session(process.pid)
            kill(process)
        if process.returncode != 0:
            said = " ".join(_text(errors).split())[-TEXT_LIMIT:] or "no message"
            raise ProgramError(f"ended with status {process.returncode}: {said}")


def _read_lines(process, lines):
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def timed_iterations(bin_folder, layer, threads, request, seconds=86400.0):
    """The runs of a case "iterations" of sparsefw-bench-device, in a process of its own."""
    command = [Path(bin_folder) / "sparsefw-bench-device", "--device", "cpu", "--layer", layer,
               "--threads", str(threads)]
    with LineProgram(command, seconds) as program:
        case = {"measure": "iterations", "warm_up": 0, "all_seconds": request["seconds"], **request}
        return program.ask(case, seconds)["runs"]


class LineProgram:
    """Started once; `description` is the line that it prints first. Ends when closed, and after
    an error, its own included: a CUDA error may spoil every later answer of the process."""

    def __init__(self, command, seconds, environment=None):
        self._name = str(command[0]).rsplit("/", 1)[-1]
        self._errors = tempfile.TemporaryFile()
        self.ended = False
        try:
            self._process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=self._errors, text=True, env=environment)
        except ProgramError:
            self._errors.close()
            raise
        self._lines = queue.Queue()
        threading.Thread(target=_read_lines, args=(self._process, self._lines),
                         daemon=True).start()
        self.description = self._next(seconds)

    def ask(self, request, seconds):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended; _next says how
        answer = self._next(seconds)
        if "error" in answer:
            self.close()
            raise ProgramError(answer["error"])
        return answer

    def _next(self, seconds):
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            self.close()
            raise TimedOut(f"{self._name} did not answer within {seconds:.0f} s") from None
        if line is None:
            try:
                code = self._process.wait(KILLED_SECONDS)
            except subprocess.TimeoutExpired:
                code = "unknown"
            said = _text(self._errors).strip()[-TEXT_LIMIT:]
            self.close()
            raise ProgramError(f"{self._name} ended with status {code}: {said or 'no message'}")
        try:
            return json.loads(line)
        except ValueError:
            self.close()
            raise ProgramError(f"{self._name} printed what is no JSON: {line[:200]}") from None

    def close(self):
        if self.ended:
            return
        self.ended = True
        kill(self._process)
        self._errors.close()
        try:
            self._process.stdin.close()
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
