"""Runs the parts one after the other, and keeps what they say: gpu-check.json is written after
every line, and a summary ends standard output, whatever happened."""
import datetime
import json
import signal
import sys
import time
from pathlib import Path

from gpu_check import layout, parts, summary
from harness import machine, store
from harness.process import ProgramError, json_lines

SCHEMA = 2
TOTAL_SECONDS = 540
LEAST_SECONDS = 2  # with less a part is not begun
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Interrupted(BaseException):
    pass


def _interrupt(number, _):
    raise Interrupted(signal.Signals(number).name)


class Runner:
    def __init__(self, options, say):
        self._options, self._say = options, say
        self._begin = time.monotonic()
        self._path = options.out / "gpu-check.json"
        self.result = {
            "schema": SCHEMA, "gpu_result": False, "device": options.device,
            "quick": options.quick, "passed": False, "complete": False, "seconds": 0.0,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": layout.commit(), "machine": {"host": machine.host(),
                                                   "gpu": machine.gpu_tools()},
            "steps": [], "files": {}}

    def _write(self):
        steps = self.result["steps"]
        self.result["seconds"] = round(time.monotonic() - self._begin, 1)
        self.result["passed"] = bool(steps) and all(
            step["outcome"] in (PASSED, SKIPPED) for step in steps)
        store.write(self._path, self.result)

    def _step(self, part, outcome, limit=0, **more):
        """A new one of the result."""
        step = {"name": part.name, "outcome": outcome, "limit_seconds": round(limit, 1),
                "seconds": 0.0, "items": [], **more}
        self.result["steps"].append(step)
        return step

    def _fail(self, step, name, detail):
        step["outcome"] = FAILED
        step["items"].append({"item": name, "ok": False, "detail": detail})
        self._say(f"{step['name']}: {name}: FAILED: {detail[:500]}")

    def _take(self, step, line):
        """Keeps a line, and only then says it: what was said is in the file."""
        said = None
        if "files" in line:
            self.result["files"].update(line["files"])
        elif "item" in line:
            step["items"].append(line)
            if line["ok"] is False:
                step["outcome"] = FAILED
            mark = {True: "ok", False: "FAILED", None: "skipped"}[line["ok"]]
            said = f"{step['name']}: {line['item']}: {mark} {line.get('detail', '')[:300]}"
        if line.get("item") == "device: device" and line["ok"]:
            self.result["machine"]["device"] = line["detail"]
            self.result["gpu_result"] = (self._options.device.startswith("cuda")
                                         and "emulated" not in line["detail"])
        step["doing"] = line.get("begin", step.get("doing"))
        self._write()
        if said:
            self._say(said)

    def _run(self, part, limit):
        step = self._step(part, PASSED, limit, doing=None)
        begin, ended = time.monotonic(), False
        command = [sys.executable, Path(__file__).resolve().parent, "part", part.name,
                   "--seconds", limit, "--out", self._options.out, "--device",
                   self._options.device, "--bin", self._options.bin, "--plan", self._options.plan,
                   *(["--no-peer"] if self._options.no_peer else [])]
        self._say(f"{part.name}: at most {limit:.0f} s")
        try:
            for line in json_lines(command, limit):
                ended = ended or line.get("end") == part.name
                self._take(step, line)
        except ProgramError as error:
            self._fail(step, step["doing"] or part.name, f"the part {error}")
        except Interrupted as reason:
            self._fail(step, step["doing"] or part.name, f"cut off by {reason}")
            raise
        else:
            if not ended:
                self._fail(step, step["doing"] or part.name, "the part ended early")
        finally:
            if step["outcome"] == PASSED and not any(one["ok"] for one in step["items"]):
                skipped = bool(step["items"])
                step["outcome"] = SKIPPED if skipped else FAILED
            step["seconds"] = round(time.monotonic() - begin, 1)
            del step["doing"]
            self._write()

    def _run_all(self, chosen, total):
        for part in chosen:
            if self._options.no_sanitizer and part.name.endswith("check"):
                self._step(part, SKIPPED)
                continue
            limit = part.quick_seconds if self._options.quick else part.seconds
            limit = min(limit * self._options.scale, total - (time.monotonic() - self._begin))
            if limit < LEAST_SECONDS:
                self._fail(self._step(part, FAILED), part.name, "no time was left for it")
            else:
                self._run(part, limit)

    def run(self):
        """Whether everything passed."""
        chosen = [parts.BY_NAME[name] for name in self._options.only]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _interrupt)
        why = None
        try:
            self._run_all(chosen, self._options.total)
            self.result["complete"] = True
        except Interrupted as reason:
            why = str(reason)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # the summary is short
            done = {step["name"] for step in self.result["steps"]}
            for step in self.result["steps"]:
                if "doing" in step:  # a signal came before it had begun, or as it ended
                    self._fail(step, step.pop("doing") or step["name"], f"cut off by {why}")
            for part in chosen:
                if part.name not in done:
                    self._fail(self._step(part, FAILED), part.name,
                               f"not run: {why or 'the check ended early'}")
            self._write()
            print(summary.text(self.result, self._figures()), flush=True)
        return self.result["passed"]

    def _figures(self):
        """{name: benchmarks' results}, of those that were written and can be read."""
        found = {}
        for name in ("goal", "rest"):
            try:
                found[name] = store.read(self.result["files"][name])
            except (KeyError, OSError, json.JSONDecodeError):
                pass
        return found
