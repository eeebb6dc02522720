"""The linear layers of a whole model through a server and its pool of devices.

The inputs are uploaded once, and each job names them: a job's own time is what a job costs, not
what an upload does. All jobs are submitted while others hold every stream, and then let go
together, so that the time from the first job's start to the last one's end is the server's alone,
however slowly they were submitted.
"""
import concurrent.futures
import json
import re
import time
from pathlib import Path

from harness.process import ProgramError
from harness.server_program import PeakMemory, ServerProgram

START_SECONDS = 60
CALL_SECONDS = 120  # of one call of sparsefw-cli, an upload of up to 1 GB included
LAYER_SECONDS = 120
END_SECONDS = 20  # for what is cancelled, and for the server's end
WARM_UP_ITERATIONS = 10
SUBMITTERS = 4
POLL_SECONDS = 0.02
KEPT = re.compile(r"^kept (tensors/\S+)", re.M)


def job_flags(request):
    """The flags of sparsefw-cli submit for what a case asks for."""
    pattern, _, sparsity = request["pattern"].partition(":")
    if sparsity and not pattern.isdigit():
        flags = ["--pattern", pattern.replace("_", "-"), "--sparsity", sparsity]
    else:
        flags = ["--pattern", request["pattern"]]
    flags += ["--alpha", request["alpha"], "--iterations", request["iterations"],
              "--step-rule", request["rule"], "--report-every", request["report_every"]]
    if request.get("rel_gap"):
        flags += ["--rel-gap", request["rel_gap"]]
    return flags


class ModelRun:
    """A server with the model's tensors. `run_program(command, seconds)` makes them. Close it."""

    def __init__(self, bin_folder, device, plan, streams, folder, log, run_program, seconds):
        self._bin, self._device, self._plan, self._log = Path(bin_folder), device, plan, log
        self._folder, self._run_program = Path(folder), run_program
        self._weights, self._grams = {}, {}  # shape, cols -> tensors/<id>
        self._started, self._ended = {}, {}  # job -> when, job -> its event
        begin, end = time.monotonic(), time.monotonic() + seconds
        self._server = ServerProgram(bin_folder, device, streams, folder,
                                     min(START_SECONDS, seconds))
        try:
            for seed, shape in enumerate(plan.layers_by_shape(), start=20):
                self._upload(shape, seed, end)
            self.slots = self._count_slots(streams)
        except BaseException:
            self.close()
            raise
        self.prepare_seconds = time.monotonic() - begin

    def _submit(self, shape, flags, seconds, weight=None, gram=None):
        """(name of the job, standard error)"""
        out, err = self._server.cli(
            "submit", "--weights", weight or self._weights[shape],
            "--gram", gram or self._grams[shape[1]], "--device", self._device, "--detach",
            "--mask-only", "--keep-tensors", "--json", *flags, seconds=min(CALL_SECONDS, seconds))
        return json.loads(out)["job"], err

    def _upload(self, shape, seed, end):
        """W, and G where no shape of these columns has brought it, with a job that warms up."""
        left = lambda: max(1.0, end - time.monotonic())  # noqa: E731
        rows, cols = shape
        path = self._folder / f"model-{rows}x{cols}.safetensors"
        self._log(f"model: layer {rows}x{cols}")
        self._run_program([self._bin / "sparsefw-bench-layer", "--rows", rows, "--cols", cols,
                           "--seed", seed, "--out", path], min(LAYER_SECONDS, left()))
        flags = ["--pattern", "unstructured", "--sparsity", 0.6, "--iterations",
                 WARM_UP_ITERATIONS]
        job, said = self._submit(shape, flags, left(), weight=f"{path}:weight",
                                 gram=self._grams.get(cols, f"{path}:gram"))
        path.unlink()
        names = KEPT.findall(said)
        if len(names) != (1 if cols in self._grams else 2):
            raise ProgramError(f"sparsefw-cli submit names no tensors: {said.strip()[-300:]}")
        self._weights[shape] = names[0]
        self._grams.setdefault(cols, names[-1])
        self._wait(lambda: job in self._ended, left())
        self._must_have_ended_well([job])

    def _count_slots(self, streams):
        """How many jobs run at once: on every device that may run them, so many streams."""
        if not self._device.startswith("cuda"):
            return streams
        found = {labels["device"]: int(value) for name, labels, value in self._server.metrics()
                 if name == "device_streams"}
        mine = [count for device, count in found.items() if self._device in ("cuda", device)]
        if not mine:
            raise ProgramError(f"the server has no streams on {self._device}")
        return sum(mine)

    def _read_events(self):
        for event in self._server.events():
            if event["event"] == "job_started":
                # The first time: a job of a device that was lost begins anew on another one.
                self._started.setdefault(event["job"], event["seconds"])
            elif event["event"] == "job_ended":
                self._ended[event["job"]] = event

    def _wait(self, done, seconds):
        """Whether it was done in time."""
        end = time.monotonic() + seconds
        while True:
            self._read_events()
            if done():
                return True
            if time.monotonic() > end:
                return False
            self._server.check()
            time.sleep(POLL_SECONDS)

    def _must_have_ended_well(self, jobs):
        for job in jobs:
            event = self._ended.get(job)
            if event is None:
                raise ProgramError(f"{job} did not end in time")
            if event["state"] != "SUCCEEDED":
                raise ProgramError(f"{job} ended as {event['state']}: {event.get('error', '')}")

    def _all_at_once(self, call, items):
        with concurrent.futures.ThreadPoolExecutor(max(SUBMITTERS, self.slots)) as pool:
            return list(pool.map(call, items))

    def _hold(self, seconds):
        """Jobs without an end on every stream, of the smallest shape; they compute, too."""
        shape = min(self._weights, key=lambda shape: shape[0] * shape[1])
        flags = ["--pattern", "unstructured", "--sparsity", 0.6, "--iterations", 10**12,
                 "--report-every", 10**9, "--priority", 100]
        held = [self._submit(shape, flags, seconds)[0] for _ in range(self.slots)]
        if not self._wait(lambda: all(job in self._started for job in held), seconds):
            self._cancel(held)
            raise ProgramError(f"{self.slots} small jobs did not start beside each other")
        return held

    def _cancel(self, jobs):
        """The last first: one that waits must not start because an earlier one has gone."""
        self._all_at_once(lambda job: self._server.cli("cancel", job, seconds=CALL_SECONDS),
                          list(reversed(jobs)))
        self._wait(lambda: all(job in self._ended for job in jobs), END_SECONDS)

    def _submit_all(self, request, end):
        """[(name, block, layer, shape)], in the order in which a model has them; fewer where the
        time is over."""
        def submit(which):
            if time.monotonic() > end:
                return None
            block, (layer, shape) = which
            flags = [*job_flags(request), "--label", f"run={request['schedule']}",
                     "--label", f"block={block}", "--label", f"layer={layer}"]
            return self._submit(shape, flags, max(1.0, end - time.monotonic()))[0]
        wanted = [(block, layer) for block in range(request["blocks"])
                  for layer in self._plan.block]
        # A few at a time: most of a submission is the start of a process.
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as pool:
            names = list(pool.map(submit, wanted))
        return [(name, block, *layer) for name, (block, layer) in zip(names, wanted) if name]

    def case(self, request, seconds):
        """What was measured, for goals and tables (model_figures.py). Raises ProgramError."""
        now = time.monotonic()
        end = now + seconds - min(END_SECONDS, seconds / 4)  # the rest: for what must be cancelled
        held = self._hold(min(START_SECONDS, seconds))
        try:
            begin = time.monotonic()
            jobs = self._submit_all(request, now + seconds / 2)
            submitted = time.monotonic() - begin
            self._log(f"model: {len(jobs)} jobs submitted in {submitted:.1f} s")
            memory = PeakMemory(self._server)
        finally:
            self._cancel(held)
        names = [job[0] for job in jobs]
        try:
            in_time = self._wait(lambda: all(name in self._ended for name in names),
                                 end - time.monotonic())
        finally:
            peaks = memory.stop()
        ended = {name for name in names if name in self._ended}
        unfinished = request["layers"] - len(ended)
        if unfinished:
            self._log(f"model: the time is over; {unfinished} jobs are left out")
        if not in_time:
            self._cancel([name for name in names if name not in ended])
        self._must_have_ended_well(sorted(ended))
        return {"slots": self.slots, "prepare_seconds": self.prepare_seconds,
                "submit_seconds": submitted, "unfinished": unfinished,
                "memory": peaks, "jobs": self._describe(jobs, ended, request["schedule"])}

    def _describe(self, jobs, ended, schedule):
        """Every job that ended, with times relative to the first start."""
        listed, _ = self._server.cli("list", "--json", "--label", f"run={schedule}",
                                     seconds=CALL_SECONDS)
        by_name = {job["job"]: job for job in json.loads(listed)["jobs"]}
        done = [job for job in jobs if job[0] in ended]
        first = min((self._started[job[0]] for job in done), default=0)
        found = []
        for name, block, layer, shape in done:
            job, timings = by_name[name], by_name[name]["timings"]
            found.append({"layer": layer, "block": block, "rows": shape[0], "cols": shape[1],
                          "device": job["device"], "iterations": job["iterations"],
                          "started": round(self._started[name] - first, 3),
                          "ended": round(self._ended[name]["seconds"] - first, 3),
                          "queue_seconds": timings["queue_s"],
                          # From its start to its end: loading and writing included.
                          "run_seconds": timings["total_s"] - timings["queue_s"],
                          "solve_seconds": timings["solve_s"]})
        return found

    def close(self):
        self._server.close()
