"""The test programs: their cases on a device, plainly and under compute-sanitizer."""
import concurrent.futures
import itertools
import json
import math
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from gpu_check.steps import StepFailed

SHARD_CASES = 50  # a program with more runs in several processes
SHAPE = re.compile(r"(?<!\d)(\d+)x(\d+)(?!\d)")
SMALL = 4096  # weights of a layer that a sanitizer is through with in seconds
SLOW = re.compile(r"Iterations|Thread|Stress|Large|Random|Memory|AtTheGap", re.IGNORECASE)
CHUNK = 3  # cases of one process under a sanitizer
CHUNK_SECONDS = 30
MOST_CASES = 36
SANITIZER_ERROR = 97
SUMMARY = re.compile(r"(ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


class Tests:
    """Those that CTest knows by the label gpu, with its arguments. On another device than CUDA's
    the same programs run the cases that name that device."""

    def __init__(self, root, tests, device, environment):
        self._root, self._tests, self._environment = root, tests, environment
        if device != "cuda":
            self._tests = [{**test, "arguments": [f"--gtest_filter=*{device}*"]} for test in tests]

    def _command(self, test, *flags):
        return [str(self._root / test["program"]), *test["arguments"], *flags]

    def cases(self, test):
        try:
            listed = subprocess.run(self._command(test, "--gtest_list_tests"), timeout=60,
                                    capture_output=True, text=True, env=self._environment,
                                    check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StepFailed(f"{test['name']} does not start: {error}") from None
        if listed.returncode != 0:
            raise StepFailed(f"{test['name']} does not start: {listed.stderr.strip()[-500:]}")
        names, suite = [], ""
        for line in listed.stdout.splitlines():
            word = line.split("#")[0].strip()
            if line.startswith("  "):
                names.append(suite + word)
            elif word.endswith("."):
                suite = word
        return names

    def run_all(self, seconds, workers):
        """(how many passed, how many were skipped). Raises StepFailed with what went wrong."""
        end = time.monotonic() + seconds
        jobs = []
        for test in self._tests:
            shards = max(1, min(workers, -(-len(self.cases(test)) // SHARD_CASES)))
            jobs += [(test, shard, shards) for shard in range(shards)]
        if not jobs:
            raise StepFailed("no test has the label gpu")
        with tempfile.TemporaryDirectory() as folder, \
                concurrent.futures.ThreadPoolExecutor(workers) as pool:
            outcomes = list(pool.map(lambda job: self._shard(*job, Path(folder), end), jobs))
        passed = sum(outcome["passed"] for outcome in outcomes)
        skipped = sum(outcome["skipped"] for outcome in outcomes)
        wrong = [line for outcome in outcomes for line in outcome["wrong"]]
        facts = {"passed_tests": passed, "skipped_tests": skipped, "wrong": wrong,
                 "programs": [test["name"] for test in self._tests]}
        if wrong:
            raise StepFailed(f"{passed} tests passed, {len(wrong)} went wrong: {wrong[0]}", **facts)
        if passed == 0:
            raise StepFailed("no test ran", **facts)
        return facts

    def _shard(self, test, shard, shards, folder, end):
        report = folder / f"{test['name']}-{shard}.json"
        environment = {**self._environment, "GTEST_TOTAL_SHARDS": str(shards),
                       "GTEST_SHARD_INDEX": str(shard)}
        outcome = {"passed": 0, "skipped": 0, "wrong": []}
        seconds = min(test["seconds"], end - time.monotonic())
        if seconds < 1:
            outcome["wrong"].append(f"{test['name']}: no time was left for it")
            return outcome
        try:
            done = subprocess.run(self._command(test, f"--gtest_output=json:{report}"),
                                  capture_output=True, text=True, timeout=seconds,
                                  env=environment, errors="replace", check=False)
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")
            outcome["passed"] = said.count("[       OK ]")
            running = said.rpartition("[ RUN      ]")[2].split()
            outcome["wrong"].append(f"{test['name']} took longer than {seconds:.0f} s, in "
                                    f"{running[0] if running else 'its start'}")
            return outcome
        if report.exists():
            self._count(json.loads(report.read_text(encoding="utf-8")), test, outcome)
        if done.returncode != 0 and not outcome["wrong"]:
            end_of_output = " ".join((done.stdout + done.stderr).split()[-60:])
            outcome["wrong"].append(f"{test['name']} ended with status {done.returncode}: "
                                    f"{end_of_output}")
        return outcome

    @staticmethod
    def _count(report, test, outcome):
        for suite in report.get("testsuites", []):
            for case in suite.get("testsuite", []):
                name = f"{test['name']}: {suite['name']}.{case['name']}"
                if case.get("failures"):
                    said = " ".join(case["failures"][0].get("failure", "").split())[:300]
                    outcome["wrong"].append(f"{name}: {said}")
                elif case.get("result") == "SKIPPED":
                    outcome["skipped"] += 1
                elif case.get("status") == "RUN":
                    outcome["passed"] += 1

    def small_cases(self):
        """[(test, names)]: of every kind of case in turn one that a sanitizer is soon through
        with, so that whatever the time allows is spread over all of them."""
        kinds = {}
        for number, test in enumerate(self._tests):
            for name in self.cases(test):
                shape = SHAPE.search(name)
                rows, cols = map(int, shape.groups()) if shape else (0, 0)
                if rows * cols > SMALL or SLOW.search(name):
                    continue
                # What follows a shape is the pattern and the dtype; every pattern counts.
                pattern = name[shape.end():].rpartition("_")[0] if shape else ""
                kind = (number, name.rpartition("/")[0] or name, pattern)
                # Columns that groups divide come first, then larger layers.
                kinds.setdefault(kind, []).append((-math.gcd(cols, 32), -rows, name))
        queues = []
        for index, (kind, found) in enumerate(sorted(kinds.items())):
            found.sort()
            turn = index % min(2, len(found))  # not the same precision of every kind
            queues.append([(kind[0], name) for *_, name in found[turn:] + found[:turn]])
        in_turn = [case for row in itertools.zip_longest(*queues) for case in row if case]
        chunks, open_chunks = [], {}
        for number, name in in_turn[:MOST_CASES]:
            if len(open_chunks.get(number, [])) in (0, CHUNK):
                open_chunks[number] = []
                chunks.append((self._tests[number], open_chunks[number]))
            open_chunks[number].append(name)
        by_program = [[chunk for chunk in chunks if chunk[0] is test] for test in self._tests]
        return [chunk for row in itertools.zip_longest(*by_program) for chunk in row if chunk]

    def sanitize(self, sanitizer, tool, seconds):
        """Runs small cases until the time is over. Raises StepFailed with what the tool says; a
        case that is too slow under it says nothing, and is only counted as not run."""
        end = time.monotonic() + seconds
        chunks = self.small_cases()
        through = 0
        for test, names in chunks:
            left = end - time.monotonic()
            if left < 1:
                break
            command = [sanitizer, "--tool", tool, "--error-exitcode", str(SANITIZER_ERROR),
                       *self._command(test, "--gtest_filter=" + ":".join(names))]
            try:
                done = subprocess.run(command, capture_output=True, text=True,
                                      timeout=min(left, CHUNK_SECONDS), env=self._environment,
                                      errors="replace", check=False)
            except subprocess.TimeoutExpired:
                continue
            self._judge(tool, test, names, done)
            through += len(names)
        wanted = sum(len(names) for _, names in chunks)
        if through == 0:
            raise StepFailed(f"{tool} was through with none of {wanted} cases within "
                             f"{seconds:.0f} s")
        return {"cases": through, "cases_wanted": wanted}

    @staticmethod
    def _judge(tool, test, names, done):
        output = done.stdout + done.stderr
        found = SUMMARY.findall(output)
        errors = sum(int(number) for entry in found for number in entry[1:] if number)
        if found and errors == 0 and done.returncode == 0:
            return
        lines = [line for line in output.splitlines() if line.startswith("=========")]
        said = " ".join(" ".join(lines or output.splitlines()[-10:]).split())[:1500]
        what = f"{errors} errors" if errors else f"status {done.returncode}"
        raise StepFailed(f"{tool}, {test['name']} {':'.join(names)}: {what}: {said}",
                         output=output[-8000:])


def workers():
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2))
