"""The server and the command line on the fixture's real layers, end to end over a socket."""
import json
import math
import re
import signal
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request
from operator import mul
from pathlib import Path

from gpu_check.steps import StepFailed

READY = re.compile(r"^listening on (\S+:\d+) metrics on (\S+:\d+) device (\S+)")
SMALL = "encoder.layer.5.attention.output.dense"  # 384x384: its loss is formed again here
WIDE = "activations/encoder.layer.2.output.dense"  # its Gram matrix is summed by the server
LINE_SEARCH = ("--step-rule", "line-search", "--iterations", "200")
CASES = (  # (file, pattern, flags)
    (SMALL, "unstructured", LINE_SEARCH),
    (SMALL, "per-row", (*LINE_SEARCH, "--swaps")),
    (SMALL, "2:4", ("--iterations", "300")),
    (WIDE, "unstructured", LINE_SEARCH),
)
SPARSITY = 0.6
CODES = {"F32": "f", "F16": "e", "F64": "d", "BOOL": "?"}  # of struct
LOSS_TOLERANCE = 1e-6  # of one formed again in float64
OTHER_DEVICE_TOLERANCE = 0.02  # of the result of the CPU engine: another path, as good a mask


class Place:
    """Where programs run, and how their paths are called there; hidden.py has another one."""

    def __init__(self, root, environment):
        self.root, self._environment = Path(root), environment
        self._scratch = tempfile.TemporaryDirectory(prefix="sparsefw-gpu-check-")
        self.scratch = Path(self._scratch.name)

    def command(self, program, arguments):
        return [str(self.root / "build/bin" / program), *map(str, arguments)]

    def inside(self, path):
        return str(path)

    def start(self, program, arguments, **options):
        return subprocess.Popen(self.command(program, arguments), env=self._environment,
                                text=True, errors="replace", **options)

    def close(self):
        self._scratch.cleanup()


class Server:
    def __init__(self, place, device, seconds):
        self._log = open(place.scratch / "server.log", "w+", encoding="utf-8")
        self._process = place.start(
            "sparsefw-server", ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                                "--state-dir", place.inside(place.scratch / "state"),
                                "--device", device],
            stdout=subprocess.PIPE, stderr=self._log)
        lines = []
        reader = threading.Thread(target=lambda: lines.append(self._process.stdout.readline()),
                                  daemon=True)
        reader.start()
        reader.join(seconds)
        ready = READY.match(lines[0]) if lines else None
        if not ready:
            self.kill()
            raise StepFailed(f"the server was not ready within {seconds:.0f} s: {self._said()}")
        self.address, self.metrics, self.device = ready[1], ready[2], ready[3]

    def _said(self):
        self._log.seek(0)
        return " ".join(self._log.read().split())[-600:] or "no message"

    def gpu_metrics(self, seconds):
        """{'power_watts{device="cuda:0"}': 123.0, ...}; empty where NVML tells nothing."""
        request = f"http://{self.metrics}/metrics"
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return gpu_metrics_in(answer.read().decode())

    def drain(self, seconds):
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise StepFailed(f"the server did not drain within {seconds:.0f} s") from None
        if code != 0:
            raise StepFailed(f"the server ended with status {code}: {self._said()}")

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def gpu_metrics_in(text):
    found = re.findall(r"^sparsefw_gpu_(\S+) (\S+)$", text, re.M)
    return {series: float(value) for series, value in found}


def read_safetensors(path):
    """{name: (shape, its values in one tuple)}"""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = entry["shape"], struct.unpack(
                f"<{math.prod(entry['shape'])}{CODES[entry['dtype']]}", data[begin:end])
    return tensors


def rows_of(shape, values):
    return [values[row * shape[1]:(row + 1) * shape[1]] for row in range(shape[0])]


def loss(weight, gram, mask):
    """<D, D G> with D = W.(1 - M), in float64; rows of each."""
    terms = []
    for weights, kept in zip(weight, mask):
        pruned = [0.0 if keep else value for value, keep in zip(weights, kept)]
        terms.append(math.fsum(value * sum(map(mul, pruned, gram[col]))
                               for col, value in enumerate(pruned) if value))
    return math.fsum(terms)


def check_counts(mask, pattern):
    """None, or what is wrong."""
    cols = len(mask[0])
    if pattern == "2:4":
        right = all(sum(row[i:i + 4]) == 2 for row in mask for i in range(0, cols, 4))
    elif pattern == "per-row":
        right = all(sum(row) == cols - int(cols * SPARSITY) for row in mask)
    else:
        size = cols * len(mask)
        right = sum(map(sum, mask)) == size - int(size * SPARSITY)
    return None if right else f"the mask does not keep what {pattern} allows"


def submit(place, server, device, case, seconds):
    """(result, mask as rows, tensors of the file)"""
    name, pattern, flags = case
    path = place.root / "tests/fixtures/minilm" / f"{name}.safetensors"
    out = place.scratch / "mask.safetensors"
    layer = Path(name).name
    inputs = ["--activations", "activations"] if "activations" in name else ["--gram", "gram"]
    arguments = ["submit", "--server", server.address, "--weights",
                 f"{place.inside(path)}:{layer}.weight", inputs[0],
                 f"{place.inside(path)}:{inputs[1]}", "--pattern", pattern,
                 *([] if ":" in pattern else ["--sparsity", SPARSITY]), *flags,
                 "--device", device, "--out", place.inside(out), "--json"]
    process = place.start("sparsefw-cli", arguments, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise StepFailed(f"{layer}, {pattern}: no result within {seconds:.0f} s") from None
    if process.returncode != 0:
        raise StepFailed(f"{layer}, {pattern}: sparsefw-cli ended with status "
                         f"{process.returncode}: {errors.strip()[-600:]}")
    return json.loads(output), rows_of(*read_safetensors(out)["mask"]), read_safetensors(path)


def check(result, mask, tensors, case, server):
    """Raises StepFailed with what is wrong; returns whether the loss was formed again."""
    name, pattern, flags = case
    where = f"{Path(name).name}, {pattern}"
    losses = result["losses"]
    wrong = check_counts(mask, pattern)
    if result["state"] != "SUCCEEDED":
        wrong = f"the job ended as {result['state']}"
    elif result["device"] != server.device:
        wrong = f"it ran on {result['device']}, not on {server.device}"
    elif not losses["lower_bound"] <= losses["final"] <= losses["warm_start"]:
        wrong = f"not bound <= loss <= that of the warm start: {losses}"
    if wrong:
        raise StepFailed(f"{where}: {wrong}")
    if name != SMALL:
        return False
    weight = next(tensor for key, tensor in tensors.items() if key.endswith(".weight"))
    again = loss(rows_of(*weight), rows_of(*tensors["gram"]), mask)
    if not abs(losses["final"] / again - 1) <= LOSS_TOLERANCE:
        raise StepFailed(f"{where}: the server says a loss of {losses['final']:.9g}; formed again "
                         f"it is {again:.9g}")
    return True


def run(place, device, seconds, cases=CASES, compare=True):
    """(line, facts). `compare`: every case also on the CPU engine of the same server."""
    end = time.monotonic() + seconds
    left = lambda: max(1.0, end - time.monotonic())  # noqa: E731
    server = Server(place, device, min(60, left()))
    facts = {"server_device": server.device, "jobs": []}
    try:
        if not server.device.startswith(device):
            raise StepFailed(f"the server says it runs on {server.device}, not on {device}")
        formed = 0
        for case in cases:
            result, mask, tensors = submit(place, server, device, case, left())
            formed += check(result, mask, tensors, case, server)
            job = {"layer": case[0], "pattern": case[1], "losses": result["losses"],
                   "iterations": result["iterations"], "timings": result["timings"]}
            facts["jobs"].append(job)
            if compare and device != "cpu":
                other = submit(place, server, "cpu", case, left())[0]["losses"]["final"]
                job["final_on_cpu"] = other
                if not abs(result["losses"]["final"] / other - 1) <= OTHER_DEVICE_TOLERANCE:
                    raise StepFailed(f"{case[0]}, {case[1]}: loss {result['losses']['final']:.6g} "
                                     f"on {server.device}, {other:.6g} on cpu", **facts)
        metrics = ""
        if server.device.startswith("cuda"):
            facts["gpu_metrics"] = server.gpu_metrics(left())
            metrics = f", {len(facts['gpu_metrics']) or 'no'} GPU metrics"
        server.drain(left())
    finally:
        server.kill()
    return (f"{len(cases)} jobs on {server.device}, losses of {formed} masks formed again in "
            f"float64{metrics}, drained"), facts
