"""The rate of uploads from Python beside that of the C++ client, in turn, on one server."""

import argparse
import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "core/benchmarks"), str(ROOT / "client/python/src")]

from harness import machine, store  # noqa: E402
from harness.process import kill, start  # noqa: E402

import sparsefw  # noqa: E402
import sparsefw.aio  # noqa: E402

GOAL = 0.8


def native(bin_folder, address, size):
    """Seconds; the second of two uploads, so that the connection is there."""
    command = [bin_folder / "sparsefw-bench-service", "--server", address, "--measure", "upload"]
    command += ["--bytes", size, "--runs", 2]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["seconds"][-1]


def python(address, array):
    """Likewise."""
    with sparsefw.connect(address) as client:
        for _ in range(2):
            began = time.perf_counter()
            tensor = client.upload(array)
            seconds = time.perf_counter() - began
            tensor.delete()
    return seconds


async def python_aio(address, array):
    """Likewise."""
    async with await sparsefw.aio.connect(address) as client:
        for _ in range(2):
            began = time.perf_counter()
            tensor = await client.upload(array)
            seconds = time.perf_counter() - began
            await tensor.delete()
    return seconds


def main():
    parser = argparse.ArgumentParser(prog="script/bench-python", description=__doc__)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench/python-upload.json")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    size = options.mib << 20
    array = np.ones((size // 4096, 1024), np.float32)
    result = {"schema": 1, "host": machine.host(), "busy_before": machine.busy_share(), "bytes": size,
              "python": sys.version.split()[0]}
    folder = tempfile.mkdtemp(prefix="sparsefw-bench-python-")
    server = start([options.bin / "sparsefw-server", "--listen", "127.0.0.1:0", "--metrics-listen",
                    "127.0.0.1:0", "--device", "cpu", "--state-dir", folder, "--log-level", "warning"],
                   text=True, stdout=subprocess.PIPE)
    seconds = {"cpp": [], "python": [], "python_aio": []}
    try:
        address = re.match(r"listening on (\S+)", server.stdout.readline())[1]
        for _ in range(options.runs):
            seconds["cpp"].append(native(options.bin, address, size))
            seconds["python"].append(python(address, array))
            seconds["python_aio"].append(asyncio.run(python_aio(address, array)))
    finally:
        kill(server, grace=10)
        shutil.rmtree(folder, ignore_errors=True)
    result["seconds"] = seconds
    median = {name: statistics.median(values) for name, values in seconds.items()}
    result["bytes_per_second"] = {name: size / value for name, value in median.items()}
    result["share"] = {name: median["cpp"] / median[name] for name in ("python", "python_aio")}
    for name, share in result["share"].items():
        rate, native_rate = result["bytes_per_second"][name], result["bytes_per_second"]["cpp"]
        met = "met" if share >= GOAL else "NOT MET"
        print(f"{name:12} {rate / 1e9:.2f} GB/s, {share:.0%} of the C++ client's {native_rate / 1e9:.2f}"
              f" (goal {GOAL:.0%}: {met})")
    store.write(options.out, result)


if __name__ == "__main__":
    main()
