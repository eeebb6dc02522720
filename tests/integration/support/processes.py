"""The two programs, as processes of their own."""
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from support.ports import hold_port

# A shell has its background commands ignore SIGINT, and what they start as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

BIN_DIR = Path(os.environ.get("SPARSEFW_BIN_DIR", "build/bin")).resolve()
# Seconds that any wait may take: one that is not over then is never over. It says nothing about speed,
# so it is the same on a busy machine and under a sanitizer.
HANG = 600.0
# A module that stands for the CUDA module where there is no device.
FAKE_CUDA = BIN_DIR.parent / "tests/libsparsefw_fake_cuda.so"
READY = re.compile(r"^listening on (\S+:\d+) metrics on (\S+:\d+) device (\S.*)$")


def wait_until(condition, what):
    deadline = time.monotonic() + HANG
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {HANG:g} s in vain: {what}"
        time.sleep(0.02)


def in_time(attempt, seconds):
    """What attempt(seconds) returns, where something has to happen before a deadline that the test sets
    itself: the seconds double until this machine is quick enough."""
    while seconds < HANG:
        value = attempt(seconds)
        if value:
            return value
        seconds *= 2
    raise AssertionError(f"not even {seconds / 2:g} s were enough")


class Server:
    """sparsefw-server on free ports of the loopback, with a state folder of its own."""

    def __init__(self, folder, *flags, env=None, wait=True, defaults=True, program=None,
                 descriptors=None):
        """descriptors: (soft, hard) limit of open files."""
        self.state_dir = Path(folder) / "state"
        self.log_path = Path(folder) / "server.log"
        self.log_file = open(self.log_path, "ab")
        command = [str(program or BIN_DIR / "sparsefw-server")]
        if descriptors:
            # Not by preexec_fn: a fork of this process runs what gRPC and the BLAS do at forks, which
            # waited for ever now and then.
            command = ["prlimit", "--nofile=%d:%d" % descriptors, *command]
        environment = {**clean_environment(), **(env or {})}
        if defaults:
            command += ["--listen", f"127.0.0.1:{hold_port()}", "--metrics-listen", "127.0.0.1:0",
                        "--state-dir", str(self.state_dir), "--device", "cpu"]
        self.process = subprocess.Popen(
            command + [str(flag) for flag in flags], stdout=subprocess.PIPE, stderr=self.log_file,
            text=True, cwd=folder,
            env={name: value for name, value in environment.items() if value is not None})
        self.output = []
        self.address = self.metrics = self.device = None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if wait:
            wait_until(lambda: self.address or self.process.poll() is not None, "ready line")
            assert self.address, f"no ready line; exit {self.process.poll()}:\n{self.log()}"

    def _read(self):
        for line in self.process.stdout:
            self.output.append(line)
            match = READY.match(line)
            if match:
                self.metrics, self.device = match[2], match[3]
                self.address = match[1]

    def log(self):
        return self.log_path.read_text(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def limit_file_size(self, size):
        """Limits the files that it writes, from now on: bytes, or unlimited."""
        subprocess.run(["prlimit", "--pid", str(self.process.pid), f"--fsize={size}:unlimited"], check=True)

    def wait(self):
        code = self.process.wait(HANG)
        self.reader.join(HANG)
        return code

    def stop(self):
        """Drains; returns the exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log_file.close()

    def expect_no_crash(self):
        """The program has ended, neither by a signal of its own nor with a sanitizer's report."""
        crashes = {-signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL, -signal.SIGSEGV}
        log = self.log()
        assert self.process.returncode not in crashes and "Sanitizer" not in log and "runtime error:" not in log, log


class Finished:
    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def json(self):
        return json.loads(self.out)

    @property
    def sentence(self):
        """The message: the last line of standard error."""
        lines = [line for line in self.err.replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def expect(self, code):
        assert self.code == code, (f"expected exit code {code}, got {self.code}\n"
                                   f"{' '.join(map(str, self.arguments))}\n{self.out[-2000:]}\n"
                                   f"{self.err[-2000:]}")
        return self

    def refused(self, code, *words):
        """Exit code, and one clear sentence that contains every one of `words`."""
        self.expect(code)
        assert self.out == "", f"standard output on failure: {self.out!r}"
        assert self.sentence, "no message"
        for word in words:
            assert word.lower() in self.sentence.lower(), f"{word!r} not in: {self.err}"
        messages = [line for line in self.err.splitlines() if line.startswith("sparsefw-cli: ")
                    and not line.endswith("; trying again")]
        assert len(messages) == 1, f"not one sentence:\n{self.err}"
        for noise in ("terminate called", "what():", "AddressSanitizer", "runtime error"):
            assert noise not in self.err, self.err
        return self


class Cli:
    def __init__(self, address=None, program=None, prefix=()):
        self.address = address
        self.command = [*prefix, str(program or BIN_DIR / "sparsefw-cli")]

    def arguments(self, *arguments, server=True):
        command = self.command + [str(argument) for argument in arguments]
        return command + (["--server", self.address] if server and self.address else [])

    def start(self, *arguments, **options):
        return subprocess.Popen(self.arguments(*arguments), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=clean_environment(),
                                **options)

    def run(self, *arguments, server=True, timeout=HANG, env=None):
        command = self.arguments(*arguments, server=server)
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              env={**clean_environment(), **(env or {})}, stdin=subprocess.DEVNULL)
        return Finished(command, done.returncode, done.stdout, done.stderr)


def finish(process):
    out, err = process.communicate(timeout=HANG)
    return Finished(process.args, process.returncode, out, err)


def clean_environment():
    """Ours, less what would configure the programs or gRPC in them, or send loopback calls to a
    proxy. Without CUDA, so that the devices are the same on every machine."""
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith(("SPARSEFW_", "GRPC_")) and not name.lower().endswith("_proxy")}
    return {**ours, "SPARSEFW_CUDA_MODULE": "none"}


def as_nobody(folder, program):
    """A command that runs a copy of the program as a user who may read only what all may."""
    copy = Path(folder) / program
    if not copy.exists():
        shutil.copy(BIN_DIR / program, copy)
        copy.chmod(0o755)
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(copy)]
