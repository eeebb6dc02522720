"""The program behind script/capacity."""
import os
import re
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np

from conftest import SOURCE_DIR
from support import safetensors
from support.processes import BIN_DIR, HANG, Cli, Server, wait_until

SHAPES = ((768, 768), (3072, 768), (2048, 2048), (4096, 4096), (14336, 4096))
PRESETS = ("fast", "balanced")
LARGE = 2048 * 2048  # weights beyond which only the first is measured
DOCUMENT = SOURCE_DIR / "docs/operations.md"
MIB = 1 << 20


def metric(server, name):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as answer:
        return float(re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.M)[1])


class Peak(threading.Thread):
    """The most of the process' own memory (files of tensors are not counted)."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stop, self.used = server, threading.Event(), 0
        self.before, self.busy = self.anonymous(), self.seconds()

    def anonymous(self):
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024

    def seconds(self):
        fields = Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def run(self):
        while not self.stop.wait(0.02):  # not a limit
            self.used = max(self.used, self.anonymous() - self.before)


def write_layer(folder, rows, cols):
    random = np.random.default_rng(1)
    x = random.standard_normal((2 * cols, cols), dtype=np.float32)
    x += 2 * random.standard_normal((2 * cols, 32), dtype=np.float32) @ \
        random.standard_normal((32, cols), dtype=np.float32) / 6
    gram = x.T @ x
    layer = folder / "layer.safetensors"
    safetensors.write(layer, {"weight": random.standard_normal((rows, cols), dtype=np.float32),
                              "gram": (gram + gram.T) / 2})
    return ["--weights", f"{layer}:weight", "--gram", f"{layer}:gram", "--pattern", "per-row",
            "--sparsity", "0.6"]


def on_host(folder, inputs, preset):
    """(bytes used, seconds of the processors)"""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        server = Server(place)
        peak = Peak(server)
        peak.start()
        done = Cli(server.address).run("submit", *inputs, "--preset", preset, "--json", "-q", "--out",
                                       f"{place}/mask.safetensors", timeout=12 * HANG).expect(0).json()
        assert done["state"] == "SUCCEEDED"
        spent = peak.seconds() - peak.busy
        peak.stop.set()
        peak.join()
        server.close()
    return peak.used, spent


def reserved(folder, inputs, preset, name, *flags, env=None):
    """What the metric says when the job runs; the server is then killed."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        server = Server(place, *flags, env=env)
        Cli(server.address).run("submit", *inputs, "--preset", preset, "--detach", timeout=HANG).expect(0)
        found = wait_until(lambda: metric(server, name), "the job")
        server.close()
    return f"{found / MIB:.0f} MiB"


def reserved_on_host(folder, inputs, preset):
    return reserved(folder, inputs, preset, "sparsefw_solve_memory_used_bytes")


def reserved_on_device(folder, inputs):
    return reserved(folder, inputs, "balanced", 'sparsefw_device_memory_used_bytes{device="cuda:0"}', "--device",
                    "cuda", env={
                        "SPARSEFW_CUDA_MODULE": str(BIN_DIR.parent / "tests/libsparsefw_cuda_module_on_host.so"),
                        "SPARSEFW_CUDA_ON_HOST_MEMORY": "80000000000"})


def main():
    shapes = SHAPES[:2] if "--quick" in sys.argv else SHAPES
    load = os.getloadavg()[0]
    rows = []
    for shape in shapes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            inputs = write_layer(folder, *shape)
            tensors = 4 * shape[0] * shape[1] + 4 * shape[1] ** 2
            presets = PRESETS if shape[0] * shape[1] <= LARGE else PRESETS[:1]
            host = [on_host(folder, inputs, preset) for preset in presets]
            cells = [f"{shape[0]}×{shape[1]}", f"{tensors / MIB:.0f} MiB",
                     *(reserved_on_host(folder, inputs, preset) for preset in (*PRESETS, "best")),
                     f"{max(one[0] for one in host) / MIB:.0f} MiB", reserved_on_device(folder, inputs),
                     *(f"{one[1]:.3g} s" for one in host),
                     *[""] * (len(PRESETS) - len(presets))]
        rows.append("| " + " | ".join(cells) + " |")
        print(rows[-1], flush=True)
    head = ["| layer, float32 | W and G | host, reserved: `fast` | `balanced` | `best` | most used "
            "| GPU, reserved: `balanced` | time: `fast` | `balanced` |", "|---|---|---|---|---|---|---|---|---|"]
    note = ('The pattern is per-row, 60 %. "Most used" is the highest memory of the jobs with a time; empty '
            "cells were not run. Times are processor seconds: two idle cores need at least half of them.\n"
            f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load average {load:.1f} at the start. GPU: emulated.")
    text = "\n".join(["<!-- capacity:begin -->", *head, *rows, "", note, "<!-- capacity:end -->"])
    if "--quick" not in sys.argv:
        old = DOCUMENT.read_text()
        DOCUMENT.write_text(re.sub(r"<!-- capacity:begin -->.*<!-- capacity:end -->", lambda _: text, old, flags=re.S))
    print(note)


if __name__ == "__main__":
    main()
