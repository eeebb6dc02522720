"""The checks of a machine with a GPU, step by step."""
import datetime
import json
import subprocess
import sys

from gpu_check import gtests, layout, machine, service
from gpu_check.steps import StepFailed, Steps, StepSkipped
from gpu_suite.tools import programs_environment

SCHEMA = 1
TOTAL_SECONDS = 590
# Seconds of each step; all of them together stay within the total.
LIMITS = {"tests": 150, "memcheck": 70, "racecheck": 70, "benchmarks": 240, "service": 60}
QUICK_LIMITS = {"tests": 90, "memcheck": 30, "racecheck": 30, "benchmarks": 90, "service": 60}
END_SECONDS = 15  # what the benchmarks need to write down what they have


class Check:
    """`options`: of the command line. `found`: what machine.probe() says."""

    def __init__(self, options, found, say):
        self.options, self.say = options, say
        self.on_gpu = options.device.startswith("cuda")
        self.limits = QUICK_LIMITS if options.quick else LIMITS
        self.steps = Steps(TOTAL_SECONDS, say)
        self.machine = {"host": machine.host(), "gpu": machine.gpu(found) if self.on_gpu else None}
        more = {"SPARSEFW_REQUIRE_GPU": "1"} if self.on_gpu else {}
        self.environment = programs_environment(**more)
        self.tests = gtests.Tests(layout.ROOT, layout.gpu_tests(), options.device.split(":")[0],
                                  self.environment)
        self.benchmarks = None

    def run_tests(self, seconds):
        facts = self.tests.run_all(seconds, gtests.workers())
        if self.on_gpu and facts["skipped_tests"]:
            raise StepFailed(f"{facts['skipped_tests']} tests were skipped on a machine that has "
                             "a GPU", **facts)
        return f"{facts['passed_tests']} tests", facts

    def sanitize(self, tool, seconds):
        if self.options.no_sanitizer:
            raise StepSkipped("--no-sanitizer")
        if not self.on_gpu:
            raise StepSkipped("no GPU is used")
        sanitizer = self.machine["gpu"]["compute_sanitizer"]
        if sanitizer is None:
            raise StepFailed("compute-sanitizer is neither on the PATH nor in /usr/local/cuda; "
                             "install it, or leave this out by --no-sanitizer")
        facts = self.tests.sanitize(sanitizer, tool, seconds)
        cut = "" if facts["cases"] == facts["cases_wanted"] else \
            f" of {facts['cases_wanted']}; for the others there was no time"
        return f"no error in {facts['cases']} cases{cut}", facts

    def run_benchmarks(self, seconds):
        out = self.options.out / "benchmarks.json"
        out.unlink(missing_ok=True)
        plan = self.options.plan or ("quick" if self.options.quick else "check")
        command = [sys.executable, str(layout.ROOT / "core/benchmarks/gpu_suite"), "--plan", plan,
                   "--device", self.options.device, "--out", str(out),
                   "--seconds", str(max(5, int(seconds - END_SECONDS)))]
        if self.options.no_peer:
            command.append("--no-peer")
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"the benchmarks took longer than {seconds:.0f} s") from None
        if not out.exists():
            raise StepFailed(f"no figures: {done.stderr.strip()[-1000:]}")
        self.benchmarks = json.loads(out.read_text(encoding="utf-8"))
        (self.options.out / "benchmarks.txt").write_text(done.stdout, encoding="utf-8")
        return self._judge_benchmarks(done)

    def _judge_benchmarks(self, done):
        results = self.benchmarks
        if results["failures"]:
            raise StepFailed(f"{len(results['failures'])} went wrong: {results['failures'][0]}")
        if done.returncode != 0:
            raise StepFailed(f"status {done.returncode}: {done.stderr.strip()[-1000:]}")
        if results["peer_skipped"] and not self.options.no_peer:
            raise StepFailed(f"{results['peer_skipped']}; install it, name its Python in "
                             "SPARSEFW_BENCH_PYTHON, or leave it out by --no-peer")
        met = [goal["met"] for goal in results["goals"] if goal["met"] is not None]
        line = f"{len(results['cases'])} cases, {sum(met)} of {len(met)} goals met"
        if results["left_out"]:
            line += f", {len(results['left_out'])} cases left out for time"
        return line, {}

    def run_service(self, seconds):
        place = service.Place(layout.ROOT, self.environment)
        try:
            return service.run(place, self.options.device, seconds)
        finally:
            place.close()

    def run(self):
        """The whole result, as it stands in gpu-check.json."""
        begin = datetime.datetime.now(datetime.timezone.utc)
        run = self.steps.run
        run("tests", self.limits["tests"], self.run_tests)
        for tool in ("memcheck", "racecheck"):
            run(tool, self.limits[tool], lambda seconds, tool=tool: self.sanitize(tool, seconds))
        run("service", self.limits["service"], self.run_service)
        run("benchmarks", self.limits["benchmarks"], self.run_benchmarks)
        seconds = (datetime.datetime.now(datetime.timezone.utc) - begin).total_seconds()
        emulated = self.benchmarks is not None and not self.benchmarks["gpu_result"]
        return {"schema": SCHEMA, "gpu_result": self.on_gpu and not emulated,
                "device": self.options.device, "quick": self.options.quick,
                "date": begin.isoformat(timespec="seconds"), "commit": layout.commit(),
                "machine": self.machine, "seconds": round(seconds, 1),
                "passed": self.steps.passed(), "steps": self.steps.done,
                "figures": self.benchmarks}
