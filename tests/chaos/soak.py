"""Runs the server under a steady mixed load and checks that its memory does not grow over the
second half. See script/soak."""
import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import paths  # noqa: F401
import variants as variants_module
from clients import CliWorker, HistoryWorker
from support.processes import BIN_DIR, HANG, Server

MIB = 1 << 20


def parse():
    parser = argparse.ArgumentParser(prog="script/soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--least-jobs", type=int, default=0, help="goes on until so many have ended")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--most-mib", type=float, default=50, help="growth that is allowed")
    parser.add_argument("--control", type=int, metavar="BYTES", default=0,
                        help="negative control: leak so much at every commit, and fail unless the check "
                             "finds it")
    return parser.parse_args()


def anonymous_bytes(pid):
    """Without mapped files: tensors are in the page cache, which the system takes back."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", text, re.M)[1]) * 1024


def growth(samples):
    """Bytes by which the straight line through the second half of [(seconds, bytes)] rises."""
    half = samples[len(samples) // 2:]
    mean_x = sum(x for x, _ in half) / len(half)
    mean_y = sum(y for _, y in half) / len(half)
    spread = sum((x - mean_x) ** 2 for x, _ in half)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in half) / spread if spread else 0
    return slope * (half[-1][0] - half[0][0])


def run(options, folder):
    (folder / "layers").mkdir()
    variants = variants_module.make_small(folder / "layers")[:3]
    flags = ["--workers", "2", "--gc-interval", "1s"]
    program, env = None, {}
    if options.control:
        program = BIN_DIR.parent / "tests/sparsefw-server-failpoints"
        env = {"SPARSEFW_FAILPOINTS": f"store.commit=leak:{options.control}"}
    server = Server(folder, *flags, program=program, env=env)
    workers = [CliWorker(server.address, variants, number, folder / f"cli{number}") if number % 2
               else HistoryWorker(server.address, variants, number, delete=1.0)
               for number in range(options.clients)]
    samples, begin = [], time.monotonic()
    try:
        for worker in workers:
            worker.start()
        while time.monotonic() - begin < options.seconds or \
                sum(worker.jobs for worker in workers) < options.least_jobs:
            time.sleep(min(2.0, options.seconds / 50))
            samples.append((time.monotonic() - begin, anonymous_bytes(server.process.pid)))
            for worker in workers:
                if worker.error:
                    raise worker.error
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.join(HANG)
            assert not worker.is_alive(), "a client hangs"
            if worker.error:
                raise worker.error
        assert server.stop() == 0, server.log()[-2000:]
    finally:
        for worker in workers:
            worker.stopping.set()
        server.close()
    return {"seconds": round(samples[-1][0]), "jobs": sum(worker.jobs for worker in workers),
            "first_mib": round(samples[0][1] / MIB, 1), "last_mib": round(samples[-1][1] / MIB, 1),
            "most_mib": round(max(size for _, size in samples) / MIB, 1),
            "growth_second_half_mib": round(growth(samples) / MIB, 2)}


def main():
    options = parse()
    folder = Path(tempfile.mkdtemp(prefix="sparsefw-soak-"))
    try:
        result = run(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    grew = result["growth_second_half_mib"] > options.most_mib
    if options.control:
        print(f"the leak was {'found' if grew else 'NOT found'}")
        return 0 if grew else 1
    if grew:
        print(f"script/soak: memory grew by {result['growth_second_half_mib']} MiB over the second "
              f"half; at most {options.most_mib:g} is allowed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
