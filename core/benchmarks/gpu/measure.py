"""Runs the cases: layers in files, the engine's program and the PyTorch programs beside it."""
import json
import os
import tempfile
import time
from pathlib import Path

from gpu import cases
from gpu.model_run import ModelRun
from harness.places import PEERS, programs_environment
from harness.process import LineProgram, ProgramError, TimedOut, run

START_SECONDS = 60  # a program opens a layer of up to 1 GB, and the device
LAYER_SECONDS = 60
CEILINGS_SECONDS = 60
SLACK_SECONDS = 15  # of a case, beyond the limit that its program keeps itself
HANGS = 2  # cases without an answer, after which no more is asked of that program


class OutOfTime(Exception):
    pass


class Bench:
    """One run. Close it: programs and layer files go with it."""

    def __init__(self, bin_folder, device, budget_seconds, log, python=None, folder=None):
        self._bin, self._device, self._log = Path(bin_folder), device, log
        self._python = python
        self._deadline = time.monotonic() + budget_seconds
        self._folder = tempfile.TemporaryDirectory(prefix="sparsefw-bench-", dir=folder)
        self._layers = {}  # shape -> path
        self._running = {}  # (shape, which) -> LineProgram: of one shape at a time
        self._hangs = {"engine": 0, "cpu": 0, "peer": 0}
        self._model = None  # ModelRun, or the error that there is none
        self.engine = self.peer = None  # what they said that they are

    def _left(self, most):
        left = self._deadline - time.monotonic()
        if left < 1:
            raise OutOfTime
        return min(left, most)

    def _layer(self, shape):
        if shape not in self._layers:
            for path in self._layers.values():  # one at a time: they are large
                path.unlink(missing_ok=True)
            self._layers.clear()
            spectrum = shape[2] if len(shape) > 2 else "flat"
            path = Path(self._folder.name) / f"{shape[0]}x{shape[1]}-{spectrum}.safetensors"
            self._log(f"layer {shape[0]}x{shape[1]} {spectrum}")
            self._run([self._bin / "sparsefw-bench-layer", "--rows", shape[0], "--cols", shape[1],
                       "--spectrum", spectrum, "--out", path], self._left(LAYER_SECONDS))
            self._layers[shape] = path
        return self._layers[shape]

    @staticmethod
    def _run(command, seconds):
        return run(command, seconds, programs_environment()).out

    def _program(self, shape, which):
        """`which`: "engine", "cpu" (the engine on the host) or "peer"."""
        key = (shape, which)
        if key in self._running:
            return self._running[key]
        for other in [other for other in self._running if other[0] != shape]:
            self._running.pop(other).close()
        layer = ["--layer", self._layer(shape)] if shape else []
        if which != "peer":
            device = "cpu" if which == "cpu" else self._device
            command = [self._bin / "sparsefw-bench-device", "--device", device, *layer]
            environment = programs_environment()
        else:
            command = [self._python, PEERS / "pytorch_peer.py", *layer, "--threads",
                       len(os.sched_getaffinity(0)), "--device", self._torch_device()]
            environment = None
        self._running[key] = LineProgram(command, self._left(START_SECONDS), environment)
        if which != "cpu":
            setattr(self, which, self._running[key].description)
        return self._running[key]

    def _torch_device(self):
        return "cuda" if self._device.startswith("cuda") else "cpu"

    def _ask(self, shape, which, request, limit):
        """The answer. A program that gave an error, or none, is started anew by the next case."""
        if self._hangs[which] >= HANGS:
            raise ProgramError(f"not run: {HANGS} cases of this program hung")
        try:
            return self._program(shape, which).ask(request, self._left(limit))
        except ProgramError as error:
            self._running.pop((shape, which), None)
            self._hangs[which] += isinstance(error, TimedOut)
            raise

    def ceilings(self, plan):
        self._log("ceilings")
        command = [self._python, PEERS / "pytorch_ceilings.py", "--device", self._torch_device(),
                   *plan.ceilings]
        return json.loads(self._run(command, self._left(CEILINGS_SECONDS)))

    def case(self, plan, shape, request):
        """The case with what was measured, or with "error". Raises OutOfTime."""
        self._left(1)
        result = {"rows": shape[0], "cols": shape[1]} if shape else {}
        if shape and len(shape) > 2:
            result["layer"] = shape[2]
        result.update(request)
        self._log(cases.describe(shape, request))
        if request["measure"] == "model":
            return {**request, **self._model_case(plan, request)}
        if self._python and request.get("peers"):
            result["peer"] = {precision: self._peer_case(plan, shape, request, precision)
                              for precision in request["peers"]}
        asked = {key: value for key, value in request.items()
                 if key not in ("peers", "schedule", "layers", "on")}
        if request["measure"] == "iterations":
            asked["marks"] = self._marks(result)
        limit = (request.get("seconds", plan.seconds) * (1 + request.get("repetitions", 1))
                 + SLACK_SECONDS)
        try:
            result.update(self._ask(shape, request.get("on", "engine"), asked, limit))
        except ProgramError as error:
            result.update(self._error(error))
        return result

    def _model_case(self, plan, request):
        """On one server for all schedules; its start and the uploads count as the first one's."""
        begin = time.monotonic()
        limit = self._left(request["seconds"])
        for key in list(self._running):  # they hold memory of the device
            self._running.pop(key).close()
        try:
            if self._model is None:
                self._model = ModelRun(self._bin, self._device, plan, request["streams"],
                                       self._folder.name, self._log, self._run, limit)
            if isinstance(self._model, ProgramError):
                raise self._model
            result = self._model.case(request, limit - (time.monotonic() - begin))
            if not result["jobs"] and limit < request["seconds"]:
                raise OutOfTime
            return result
        except ProgramError as error:
            self._close_model()
            self._model = error  # what it said would only be said again
            return self._error(error)

    def _close_model(self):
        if isinstance(self._model, ModelRun):
            self._model.close()
        self._model = None

    def _error(self, error):
        if self._deadline - time.monotonic() < 1:
            raise OutOfTime  # it was cut short, not wrong
        return {"error": str(error)}

    def _peer_case(self, plan, shape, request, precision):
        """Right before the engine's; an error here leaves the engine's figures standing."""
        asked = {"pattern": request["pattern"], "alpha": request["alpha"],
                 "iterations": plan.peer_iterations, "seconds": request["seconds"],
                 "tf32": precision == "tf32"}
        try:
            return self._ask(shape, "peer", asked, request["seconds"] + SLACK_SECONDS)
        except ProgramError as error:
            return self._error(error)

    @staticmethod
    def _marks(result):
        """Also where the PyTorch programs ended: there the two are compared."""
        ends = [answer["iterations"] for answer in result.get("peer", {}).values()
                if "error" not in answer]
        return sorted({*cases.EARLY_MARKS, *ends})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self._running.values():
            program.close()
        self._close_model()
        self._folder.cleanup()
