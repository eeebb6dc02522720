"""The test programs: their cases on a device, plainly and under compute-sanitizer. What is found
is reported by item(name, ok, detail)."""
import itertools
import math
import os
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from harness.process import ProgramError, TimedOut, run

SHARD_CASES = 50  # a program with more runs in several processes
STALL_SECONDS = 25  # a test that says nothing for so long hangs
ALONE_SECONDS = 10  # of a case that is run again
FIRST_SHARE = 0.6  # of the time, for the first run of all of them
SHAPE = re.compile(r"(?<!\d)(\d+)x(\d+)(?!\d)")
SMALL = 4096  # weights of a layer that a sanitizer is through with in seconds
SLOW = re.compile(r"Iterations|Thread|Stress|Large|Random|Memory|AtTheGap", re.IGNORECASE)
CHUNK = 3  # cases of one process under a sanitizer
CHUNK_SECONDS = 20
HANGS = 2  # chunks that may hang under a sanitizer
MOST_CASES = 36
SANITIZER_ERROR = 97
SUMMARY = re.compile(r"(ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
SKIPPED = re.compile(r"\S+:\d+: Skipped\s+(.*)", re.S)
# Why a test may skip itself on a device that works: GTEST_SKIP() << REASON.
BY_DESIGN = ("copies are counted by the emulation alone", "faults are those of the emulation",
             "the group does not divide the columns")
EVENT = re.compile(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+?)(?:,| |$)", re.M)


def outcomes(said):
    """{case: ("passed", "failed", "skipped" or "unfinished", its output)} of a test's output."""
    found, events = {}, list(EVENT.finditer(said))
    for event, following in itertools.zip_longest(events, events[1:]):
        kind, name = event[1], event[2]
        if kind == "RUN":
            text = said[event.end():following.start() if following else None]
            found[name] = ("unfinished", " ".join(text.split())[:400])
        elif name in found and found[name][0] == "unfinished":
            state = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[kind]
            found[name] = (state, found[name][1])
    return found


def skip_reason(said):
    """The reason in the output of a test that was skipped. "": it gives none."""
    found = SKIPPED.search(said)
    return found[1].strip() if found else ""


def judge(outcomes_of_cases):
    """(whether all is well, the counts in words). A test that skips itself by design is well; one
    that skips itself for any other reason has not shown what it is there for."""
    counts = Counter()
    for state, said in outcomes_of_cases:
        reason = skip_reason(said) if state == "skipped" else None
        counts[(state, reason)] += 1
    words = [f"{count} {state}" + ("" if reason is None else f" ({reason or 'no reason given'})")
             for (state, reason), count in counts.items()]
    good = counts and all(state == "passed" or reason in BY_DESIGN for state, reason in counts)
    return bool(good), ", ".join(words) or "no test ran"


class Tests:
    """Those that CTest knows by the label gpu, with its arguments. On another device than CUDA's
    the same programs run the cases that name that device."""

    def __init__(self, root, tests, device, environment):
        self._root, self._tests, self._environment = root, tests, environment
        if device != "cuda":
            self._tests = [{**test, "arguments": [f"--gtest_filter=*{device}*"]} for test in tests]

    def _command(self, test, *flags):
        return [self._root / test["program"], *test["arguments"], *flags]

    def cases(self, test):
        """Names; ProgramError where the program does not start."""
        listed = run(self._command(test, "--gtest_list_tests"), 20, self._environment).out
        names, suite = [], ""
        for line in listed.splitlines():
            word = line.split("#")[0].strip()
            if line.startswith("  "):
                names.append(suite + word)
            elif word.endswith("."):
                suite = word
        return names

    def _listed(self, item):
        """[(test, cases)] of the programs that start."""
        found = []
        for test in self._tests:
            try:
                found.append((test, self.cases(test)))
            except ProgramError as error:
                item(test["name"], False, str(error))
        if not self._tests:
            item("tests", False, "no test has the label gpu")
        return found

    def run_all(self, seconds, workers, item):
        """Every case; what failed, hung, or was not run since another one did, again and alone."""
        end, begin = time.monotonic() + seconds, time.monotonic()
        listed, jobs = self._listed(item), []
        for test, names in listed:
            shards = max(1, min(workers, -(-len(names) // SHARD_CASES)))
            jobs += [(test, shard, shards, begin + FIRST_SHARE * seconds)
                     for shard in range(shards)]
        again = []
        with ThreadPoolExecutor(workers) as pool:
            said = list(pool.map(lambda job: self._shard(*job), jobs))
        for test, names in listed:
            mine = [one for job, one in zip(jobs, said) if job[0] is test]
            found = {name: what for text, _ in mine for name, what in outcomes(text).items()}
            ends = [found.get(name, ("not run", "")) for name in names]
            again += [(test, name, *end_of_case) for name, end_of_case in zip(names, ends)
                      if end_of_case[0] in ("failed", "unfinished", "not run")]
            ended = "; ".join(error for _, error in mine if error)
            good, words = judge(ends)
            item(test["name"], good and not ended, f"{words}{'; ' if ended else ''}{ended}")
        self._alone(again, end, workers, item)

    def _shard(self, test, shard, shards, end):
        """(output, how it ended if not well)"""
        environment = {**self._environment, "GTEST_TOTAL_SHARDS": str(shards),
                       "GTEST_SHARD_INDEX": str(shard)}
        seconds = min(test["seconds"], end - time.monotonic())
        if seconds < 1:
            return "", "no time was left"
        try:
            done = run(self._command(test), seconds, environment, check=False,
                       stall=STALL_SECONDS)
        except TimedOut as late:
            return late.said, "hung, or took too long"
        except ProgramError as error:
            return "", str(error)
        # 1: cases failed, which their lines say.
        return done.out, "" if done.code in (0, 1) else \
            f"status {done.code}: {' '.join(done.err.split())[-300:]}"

    def _alone(self, again, end, workers, item):
        def once(one):
            test, name, state, said = one
            title = f"{test['name']}: {name}"
            seconds = min(ALONE_SECONDS, end - time.monotonic())
            if seconds < 1:
                return title, state == "passed", f"{state}; no time to run it alone. {said}"
            try:
                done = run([self._root / test["program"], f"--gtest_filter={name}"], seconds,
                           self._environment, check=False)
                state_alone, said_alone = outcomes(done.out).get(name, ("not run", done.err[-300:]))
            except TimedOut:
                state_alone, said_alone = f"hangs for {seconds:.0f} s", ""
            except ProgramError as error:
                state_alone, said_alone = "not run", str(error)
            # Not its fault that another one ended the program.
            good = state == "not run" and judge([(state_alone, said_alone)])[0]
            return title, good, f"{state} with others, {state_alone} alone: {said_alone or said}"
        # A test that failed by itself tells the most.
        order = {"failed": 0, "unfinished": 1, "not run": 2}
        again = sorted(again, key=lambda one: order[one[2]])
        with ThreadPoolExecutor(workers) as pool:
            for answer in pool.map(once, again):
                item(*answer)

    def small_cases(self, item):
        """[(test, names)]: of every kind of case in turn one that a sanitizer is soon through
        with, so that whatever the time allows is spread over all of them."""
        kinds = {}
        listed = self._listed(item)
        for number, (_, names) in enumerate(listed):
            for name in names:
                shape = SHAPE.search(name)
                rows, cols = map(int, shape.groups()) if shape else (0, 0)
                if rows * cols > SMALL or SLOW.search(name):
                    continue
                # Pattern and dtype follow the shape; every pattern counts.
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
                chunks.append((listed[number][0], open_chunks[number]))
            open_chunks[number].append(name)
        by_program = [[chunk for chunk in chunks if chunk[0] is test] for test, _ in listed]
        return [chunk for row in itertools.zip_longest(*by_program) for chunk in row if chunk]

    def sanitize(self, sanitizer, tool, seconds, item):
        """Small cases until the time is over. One that is too slow under the tool says nothing,
        and is only counted as not run. Kernels of cuBLAS, and calls that it tries, are left
        out."""
        end, through, hangs = time.monotonic() + seconds, 0, 0
        chunks = self.small_cases(item)
        for test, names in chunks:
            left = end - time.monotonic()
            if left < 1 or hangs >= HANGS:
                break
            command = [sanitizer, "--tool", tool, "--error-exitcode", SANITIZER_ERROR,
                       "--kernel-name", "kns=sparsefw",
                       *(["--report-api-errors", "no"] if tool == "memcheck" else []),
                       self._root / test["program"], "--gtest_filter=" + ":".join(names)]
            try:
                done = run(command, min(left, CHUNK_SECONDS), self._environment, check=False)
            except TimedOut:
                hangs += 1
                continue
            except ProgramError as error:
                item(f"{tool} {test['name']}", False, str(error))
                break
            wrong = self._wrong(done)
            if wrong:
                item(f"{tool} {test['name']} {':'.join(names)}", False, wrong)
            through += len(names)
        wanted = sum(len(names) for _, names in chunks)
        item(tool, through > 0, f"through with {through} of {wanted} cases"
             + (f", {hangs} chunks hung" if hangs else ""))

    @staticmethod
    def _wrong(done):
        """None, or what the tool found."""
        output = done.out + done.err
        found = SUMMARY.findall(output)
        errors = sum(int(number) for entry in found for number in entry[1:] if number)
        if found and errors == 0 and done.code == 0:
            return None
        lines = [line for line in output.splitlines() if line.startswith("=========")]
        said = " ".join(" ".join(lines or output.splitlines()[-10:]).split())[:1500]
        return f"{f'{errors} errors' if errors else f'status {done.code}'}: {said}"


def workers():
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2))
