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
from dataclasses import dataclass
from pathlib import Path

GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
KILLED_SECONDS = 5  # what a killed process may take to end
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
        return subprocess.Popen(words, **GROUP, **options)
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
    """Kills every process of a session, whatever group it is in."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            pass


def _text(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def run(command, seconds, environment=None, check=True):
    """Done. `check`: ProgramError unless it ends with status 0. Raises TimedOut."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                        env=environment)
        try:
            process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            kill(process)
            raise TimedOut(f"{command[0]} took longer than {seconds:.0f} s",
                           _text(out) + _text(err)) from None
        except BaseException:
            kill(process)
            raise
        kill(process)  # what it left behind
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
        threading.Thread(target=self._read, daemon=True).start()
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

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

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
