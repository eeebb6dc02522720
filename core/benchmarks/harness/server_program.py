"""A sparsefw-server of its own: started, asked by sparsefw-cli, watched and ended."""
import datetime
import json
import re
import subprocess
import threading
import urllib.request
from pathlib import Path

from harness.places import programs_environment
from harness.process import ProgramError, kill, run, start

READY = re.compile(r"^listening on (\S+:\d+) metrics on (\S+:\d+) device (\S+)")
SERIES = re.compile(r"^sparsefw_(\w+)(?:\{(.*)\})? (\S+)$", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
DRAIN_SECONDS = 30
# Fine enough that NVML's figure sees a job of a second; the scrapes come no more often.
GPU_METRICS_PERIOD = "200ms"
SAMPLE_SECONDS = 0.2


def metrics_in(text):
    """[(name without "sparsefw_", {label: value}, number)]"""
    return [(name, dict(LABEL.findall(labels)), float(value))
            for name, labels, value in SERIES.findall(text)]


class ServerProgram:
    """On loopback, on ports that the system chooses, with everything that it keeps under `folder`.
    Close it: SIGTERM, then SIGKILL."""

    def __init__(self, bin_folder, device, streams, folder, seconds):
        self._bin, self._environment = Path(bin_folder), programs_environment()
        self._log_path = Path(folder) / "server.log"
        self._log = open(self._log_path, "w", encoding="utf-8")
        self._read, self._rest = 0, b""  # of the log so far, and its last line while it has no end
        # One number for both kinds of devices: a job takes either a worker or a stream.
        command = [self._bin / "sparsefw-server", "--listen", "127.0.0.1:0", "--metrics-listen",
                   "127.0.0.1:0", "--state-dir", Path(folder) / "state", "--device", device,
                   "--workers", streams, "--streams-per-device", streams, "--drain-grace", "1s",
                   "--fetch-grace", "0s", "--gpu-metrics-period", GPU_METRICS_PERIOD,
                   "--log-format", "json"]
        try:
            self._process = start(command, text=True, stdout=subprocess.PIPE, stderr=self._log,
                                  env=self._environment)
        except ProgramError:
            self._log.close()
            raise
        ready = self._ready(seconds)
        if not ready:
            said = self._said()
            code = self._process.poll()
            how = f"ended with status {code}" if code is not None else \
                f"was not ready within {seconds:.0f} s"
            self.close()
            raise ProgramError(f"sparsefw-server {how}: {said}")
        self.address, self._metrics, self.device = ready.groups()

    def _ready(self, seconds):
        lines = []
        reader = threading.Thread(target=lambda: lines.append(self._process.stdout.readline()),
                                  daemon=True)
        reader.start()
        reader.join(max(0.0, seconds))
        ready = READY.match(lines[0]) if lines else None
        if lines and not ready:  # it says nothing more: it is ending
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        return ready

    def _said(self):
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").split("\n")
        return "; ".join(line for line in lines[-4:] if line)[-800:] or "no message"

    def check(self):
        """Raises ProgramError if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise ProgramError(f"sparsefw-server ended with status {code}: {self._said()}")

    def cli(self, command, *arguments, seconds):
        """(standard output, standard error) of sparsefw-cli."""
        self.check()
        try:
            done = run([self._bin / "sparsefw-cli", command, "--server", self.address,
                        "--retry-for", "5s", *arguments], seconds, self._environment)
        except ProgramError:
            self.check()
            raise
        return done.out, done.err

    def events(self):
        """What the log says since the last call: [{"event", "job", "seconds" (Unix), ...}]. The
        server's own times, to the millisecond, without asking it anything while it works."""
        with open(self._log_path, "rb") as log:
            log.seek(self._read)
            text = self._rest + log.read()
            self._read = log.tell()
        *lines, self._rest = text.split(b"\n")
        found = []
        for line in lines:
            try:
                event = json.loads(line)
                when = datetime.datetime.fromisoformat(event["ts"].replace("Z", "+00:00"))
            except (ValueError, KeyError, TypeError):
                continue  # of a library, not of the server
            found.append({**event, "seconds": when.timestamp()})
        return found

    def metrics(self, seconds=10):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"http://{self._metrics}/metrics", timeout=seconds) as answer:
            return metrics_in(answer.read().decode())

    def resident(self):
        """{"VmHWM": bytes, "RssAnon": bytes, ...} of the process."""
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        return {name: int(value) * 1024 for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", text,
                                                                     re.M)}

    def forget_peak(self):
        """Lets VmHWM begin anew; where the system refuses, it contains the uploads."""
        try:
            Path(f"/proc/{self._process.pid}/clear_refs").write_text("5", encoding="utf-8")
        except OSError:
            pass

    def close(self, seconds=DRAIN_SECONDS):
        """Its exit status: 0 where SIGTERM drained it."""
        kill(self._process, grace=seconds)
        self._log.close()
        return self._process.returncode


class PeakMemory:
    """Samples a server's memory until it is stopped; keeps the largest of each."""

    GAUGES = {"device_memory_used_bytes": "reserved_bytes",
              "device_memory_budget_bytes": "budget_bytes",
              "gpu_memory_used_bytes": "used_bytes"}  # NVML's, of the whole card

    def __init__(self, server):
        self._server, self._stop = server, threading.Event()
        self.peaks, self.samples = {}, 0
        server.forget_peak()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while True:
            self._sample()
            if self._stop.wait(SAMPLE_SECONDS):
                return

    def _sample(self):
        try:
            self.add(self._server.metrics(5), self._server.resident())
        except OSError:
            pass  # it is busy, or has ended, which others say

    def add(self, metrics, resident):
        for name, labels, value in metrics:
            if name in self.GAUGES:
                self._keep(self.peaks.setdefault(self.GAUGES[name], {}), labels["device"], value)
        for name, key in (("VmHWM", "resident_bytes"), ("RssAnon", "anonymous_bytes")):
            if name in resident:
                self._keep(self.peaks, key, resident[name])
        self.samples += 1

    @staticmethod
    def _keep(peaks, key, value):
        peaks[key] = max(peaks.get(key, 0), int(value))

    def stop(self):
        """{"reserved_bytes": {device: n}, "used_bytes": ..., "resident_bytes": n, ...}; what nobody
        told is not there."""
        self._stop.set()
        self._thread.join()
        self._sample()
        return {**self.peaks, "samples": self.samples}
