"""The goals of the service, each measured beside what it is compared with, in one run."""
import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "core/benchmarks"))

from harness import machine, store  # noqa: E402
from harness.process import kill, run, start  # noqa: E402

MIB = 1 << 20


class Program:
    """A server on a free port of loopback."""

    def __init__(self, *command):
        self.process = start([str(part) for part in command], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        self.address = re.match(r"listening on (\S+)", line)[1]

    def anonymous_bytes(self):
        """The largest so far: files that are mapped do not count as the server's memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"^RssAnon:\s+(\d+) kB$", text, re.M)[1]) * 1024

    def close(self):
        kill(self.process, grace=30)


class Bench:
    def __init__(self, bin_folder, folder):
        self.bin, self.folder, self.count = bin_folder, folder, 0

    def server(self, *flags):
        self.count += 1
        return Program(self.bin / "sparsefw-server", "--listen", "127.0.0.1:0", "--metrics-listen",
                       "127.0.0.1:0", "--device", "cpu", "--host-memory", "16GiB", "--state-dir",
                       self.folder / f"state{self.count}", "--log-level", "warning", *flags)

    def measure(self, address, name, seconds=300, **flags):
        arguments = [part for key, value in flags.items() for part in (f"--{key}", str(value))]
        done = run([self.bin / "sparsefw-bench-service", "--server", address, "--measure", name,
                    *arguments], seconds)
        return json.loads(done.out)

    def sink(self, *flags):
        return Program(self.bin / "sparsefw-bench-sink", *flags)

    def upload(self, runs):
        """In turn, so that all meet the same machine. The sinks in between do, one by one, what
        the server has to do as well: they say where the time goes."""
        files = self.folder / "sink"
        files.mkdir()
        programs = {"server": self.server(), "sink": self.sink(),
                    "sink_checksum": self.sink("--checksum"),
                    "sink_checksum_file": self.sink("--checksum", "--file", files),
                    "sink_checksum_file_sync": self.sink("--checksum", "--file", files, "--sync")}
        seconds = {name: [] for name in programs}
        try:
            for _ in range(runs):
                for name, one in programs.items():
                    seconds[name] += self.measure(one.address, "upload", runs=2)["seconds"][1:]
        finally:
            for one in programs.values():
                one.close()
        size = 256 * MIB
        rate = {name: size / statistics.median(times) for name, times in seconds.items()}
        return {"bytes": size, "seconds": seconds, "bytes_per_second": rate,
                "share": rate["server"] / rate["sink"],
                "share_of_sync": rate["server"] / rate["sink_checksum_file_sync"]}

    def latency(self, runs):
        result = {}
        for name, one in (("server", self.server()), ("sink", self.sink())):
            with closing(one):
                for uploads in (0, 4):
                    times = sorted(self.measure(one.address, "latency", runs=runs,
                                                uploads=uploads)["milliseconds"])
                    result[f"{name}_uploads_{uploads}"] = {
                        "p50_ms": times[len(times) // 2], "p99_ms": times[len(times) * 99 // 100],
                        "most_ms": times[-1]}
        return result

    def overhead(self, runs):
        with closing(self.server()) as server:
            found = self.measure(server.address, "overhead", runs=runs)
        job, solve = (statistics.median(found[key]) for key in ("seconds", "in_process_seconds"))
        return {"job_ms": 1e3 * job, "solve_ms": 1e3 * solve, "overhead_ms": 1e3 * (job - solve)}

    def queue(self, jobs):
        with closing(self.server("--workers", "2")) as server:
            found = self.measure(server.address, "queue", runs=jobs, clients=16,
                                 iterations=4000)
        found["rate_share"] = found["sequential_solve_seconds"] / found["seconds"]
        return found

    def reports(self, runs, reports, watchers):
        """Jobs whose iterations take microseconds, so that reports are most of their time."""
        with closing(self.server("--workers", "1")) as server:
            found = self.measure(server.address, "reports", runs=runs, clients=watchers,
                                 iterations=reports)
        watched, alone = (statistics.median(found[key])
                          for key in ("seconds", "unwatched_seconds"))
        found["report_ms"] = 1e3 * (watched - alone) / reports
        return found

    def memory(self, bytes_each):
        with closing(self.server("--staging-memory", "512MiB")) as server:
            before = server.anonymous_bytes()
            process = start([str(part) for part in (
                self.bin / "sparsefw-bench-service", "--server", server.address, "--measure",
                "fill", "--uploads", "8", "--bytes", bytes_each)], stdout=subprocess.DEVNULL)
            most = before
            while process.poll() is None:
                most = max(most, server.anonymous_bytes())
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            if process.returncode != 0:
                raise SystemExit("the uploads failed")
        return {"uploads": 8, "bytes_each": bytes_each, "idle_bytes": before, "most_bytes": most,
                "budget_bytes": 512 * MIB}


def table(results):
    """[(what, measured, goal, met)]; None where there is no goal."""
    lines = []
    if one := results.get("upload"):
        rate = {name: value / 1e9 for name, value in one["bytes_per_second"].items()}
        lines.append(("upload of 256 MiB, of a bare sink's rate", f"{one['share']:.0%} "
                      f"({rate['server']:.2f} of {rate['sink']:.2f} GB/s)", ">= 85%",
                      one["share"] >= 0.85))
        lines.append(("  the sink with checksum; and a file; and fdatasync", " / ".join(
            f"{rate['sink' + end]:.2f}" for end in ("_checksum", "_checksum_file",
                                                     "_checksum_file_sync")) + " GB/s", "", None))
    if one := results.get("overhead"):
        lines.append(("job overhead over the in-process solve", f"{one['overhead_ms']:.2f} ms",
                      "<= 5 ms", one["overhead_ms"] <= 5))
    if one := results.get("latency"):
        loaded = one["server_uploads_4"]
        lines.append(("unary call beside 4 uploads, p99", f"{loaded['p99_ms']:.1f} ms (idle "
                      f"{one['server_uploads_0']['p99_ms']:.1f})", "<= 10 ms",
                      loaded["p99_ms"] <= 10))
        lines.append(("  the same of the bare sink", f"{one['sink_uploads_4']['p99_ms']:.1f} ms "
                      f"(idle {one['sink_uploads_0']['p99_ms']:.1f})", "", None))
    if one := results.get("reports"):
        lines.append((f"a report of a job with {one['watchers']} watchers",
                      f"{one['report_ms']:.4f} ms", "<= 1 ms", one["report_ms"] <= 1))
    if one := results.get("memory"):
        lines.append(("server memory with 8 uploads", f"{one['most_bytes'] / MIB:.0f} MiB",
                      "<= 712 MiB", one["most_bytes"] <= 712 * MIB))
    if one := results.get("queue"):
        lines.append(("1000 jobs of 16 clients, of the sequential solver's rate",
                      f"{one['rate_share']:.2f}, {one['jobs_there']} of {one['jobs']} jobs",
                      ">= 0.9, none lost", one["rate_share"] >= 0.9
                      and one["jobs_there"] == one["jobs"]))
    return lines


def main():
    parser = argparse.ArgumentParser(prog="script/bench-service", description=__doc__)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=Path, help="JSON of all figures")
    parser.add_argument("--quick", action="store_true", help="that it works, not how fast")
    parser.add_argument("--only", choices=("upload", "latency", "overhead", "queue", "reports",
                                           "memory"))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sparsefw-bench-service-"))
    bench, quick = Bench(options.bin, folder), options.quick
    steps = {"upload": lambda: bench.upload(1 if quick else 9),
             "overhead": lambda: bench.overhead(5 if quick else 200),
             "latency": lambda: bench.latency(50 if quick else 2000),
             "queue": lambda: bench.queue(50 if quick else 1000),
             "reports": lambda: (bench.reports(1, 2000, 50) if quick
                                 else bench.reports(5, 100_000, 1000)),
             "memory": lambda: bench.memory((64 if quick else 1024) * MIB)}
    results = {"schema": 1, "host": machine.host(), "busy_before": machine.busy_share()}
    try:
        for name, step in steps.items():
            if options.only in (None, name):
                print(f"script/bench-service: {name}", file=sys.stderr)
                results[name] = step()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what, measured, goal, met in table(results):
        verdict = {True: "met", False: "NOT MET", None: ""}[met]
        print(f"{what:58} {measured:34} {goal:18} {verdict}".rstrip())
    if options.out:
        store.write(options.out, results)


if __name__ == "__main__":
    main()
