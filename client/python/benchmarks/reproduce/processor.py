"""Processor seconds of a run: of this process and of its server, over all parts of a resumed run."""

import contextlib
import json
import os
import threading
import time
from pathlib import Path

_EVERY = 5.0  # seconds between two writes


def server_of(server):
    """The process id of an embedded server."""
    guard = server._guard.pid
    (child,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    return int(child)


def _seconds(process):
    """User and system time, of all of a process's threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Counter:
    """Counts while it is entered. The sum is kept in the file, for the next part of an interrupted run.

    Work that is done again after an interruption counts again.
    """

    def __init__(self, server, path):
        self._server, self._path = server_of(server), Path(path)
        self._before = json.loads(self._path.read_text()) if self._path.exists() else 0.0
        self._begin = self._now()
        self._end = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self.seconds = self._before

    def _now(self):
        return time.process_time() + _seconds(self._server)

    def _keep(self):
        self.seconds = self._before + self._now() - self._begin
        partial = self._path.with_name(f"{self._path.name}.partial")
        partial.write_text(json.dumps(self.seconds))
        partial.rename(self._path)

    def _write(self):
        while not self._end.wait(_EVERY):
            self._keep()

    def __enter__(self):
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer.start()
        return self

    def __exit__(self, kind, *error):
        self._end.set()
        self._writer.join()
        # Not over an error of the run, which may be that there is no server any more.
        with contextlib.suppress(OSError) if kind else contextlib.nullcontext():
            self._keep()
