"""A server of one's own, as a child process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

import grpc

from sparsefw import errors

_READY: Final = re.compile(r"^listening on (\S+) ")
_GUARD: Final = Path(__file__).with_name("_guard.py")


def find_program(name: str = "sparsefw-server") -> str:
    """The path of a program: SPARSEFW_SERVER_PROGRAM (of the server), the wheel sparsefw-server, PATH.

    Raises:
        FailedPrecondition (SERVER_MISSING): none of them has it.
    """
    named = os.environ.get("SPARSEFW_SERVER_PROGRAM", "") if name == "sparsefw-server" else ""
    if named:
        if os.access(named, os.X_OK):
            return named
        raise _missing(f"SPARSEFW_SERVER_PROGRAM is {named}, which is no program")
    with contextlib.suppress(ImportError, FileNotFoundError):
        return str(importlib.import_module("sparsefw_server").program(name))
    found = shutil.which(name)
    if found:
        return found
    raise _missing(
        f"there is no {name}: pip install sparsefw-server, or name the program in SPARSEFW_SERVER_PROGRAM"
    )


def _missing(message: str) -> errors.Error:
    return errors.refuse(grpc.StatusCode.FAILED_PRECONDITION, "SERVER_MISSING", message)


class EmbeddedServer:
    """A server on a free port of the loopback, with a private state folder that goes with it.

    It ends with `close`, at the exit of this process, and when this process is killed: a small guard
    process watches for that, ends the server and removes the folder. Ctrl-C does not reach it. A context
    manager.

    Attributes:
        address: "127.0.0.1:PORT".
        device:  the device that "auto" means there.
        log:     path of the server's log, until `close`.
    """

    def __init__(self, *flags: str, timeout: float = 60.0) -> None:
        """Starts it and waits until it listens.

        Args:
            flags:   more flags of sparsefw-server; "--state-dir" keeps the state where one wants it.
            timeout: seconds.

        Raises:
            FailedPrecondition (SERVER_MISSING), Unavailable (SERVER_FAILED): with the end of its log.
        """
        program = find_program()
        self._owner = os.getpid()
        self._folder = tempfile.mkdtemp(prefix="sparsefw-")  # for this user alone
        self.log = Path(self._folder) / "server.log"
        self.address = self.device = ""
        command = [program, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        command += ["--drain-grace", "1s", "--fetch-grace", "0s"]
        if not any(flag.startswith("--state-dir") for flag in flags):
            command += ["--state-dir", str(Path(self._folder) / "state")]
        # No settings of other servers on this machine.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SPARSEFW_") or name == "SPARSEFW_CUDA_MODULE"
        }
        # -I -S: nothing of this environment, so that it starts in milliseconds.
        guard = [sys.executable, "-I", "-S", str(_GUARD)]
        try:
            with open(self.log, "wb") as log:
                self._guard = subprocess.Popen(
                    [*guard, str(os.getpid()), self._folder, *command, *flags],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    text=True,
                    start_new_session=True,
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        atexit.register(self.close)
        try:
            self._await_ready(timeout)
        except BaseException:
            self.close()
            raise

    def _await_ready(self, timeout: float) -> None:
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        output = self._guard.stdout
        assert output is not None

        def read() -> None:
            # To its end, so that the server never waits for a reader.
            with contextlib.suppress(ValueError, OSError):
                for line in output:
                    lines.put(line)
            lines.put("")

        threading.Thread(target=read, name="sparsefw-server", daemon=True).start()
        try:
            line = lines.get(timeout=timeout)
        except queue.Empty:
            raise self._failed(f"was not ready within {timeout:g} s") from None
        match = _READY.match(line)
        if not match:
            raise self._failed("did not start")
        self.address = match[1]
        self.device = line.rstrip().rpartition(" device ")[2]

    def _failed(self, what: str) -> errors.Error:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._guard.wait(timeout=0.5)
        lines = self.log.read_text(errors="replace").strip().splitlines() or ["its log is empty"]
        return errors.refuse(
            grpc.StatusCode.UNAVAILABLE,
            "SERVER_FAILED",
            f"sparsefw-server {what}: " + " | ".join(lines[-3:]),
        )

    def close(self) -> None:
        """Ends the server, gently for a second, and removes its state. Safe to call again."""
        if os.getpid() != self._owner:  # a fork's exit is not ours
            return
        atexit.unregister(self.close)
        if self._guard.stdin and not self._guard.stdin.closed:
            with contextlib.suppress(OSError):
                self._guard.stdin.close()
        self._guard.terminate()  # a child that was forked may hold the pipe open
        try:
            self._guard.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        # The reader may hold the stream's lock; the thread ends by itself with the pipe.
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def serve(*flags: str, timeout: float = 60.0) -> EmbeddedServer:
    """Starts a server of one's own; see EmbeddedServer.

    Examples:
        >>> with sparsefw.serve("--device", "cpu") as server:        # doctest: +SKIP
        ...     client = sparsefw.connect(server.address)
    """
    return EmbeddedServer(*flags, timeout=timeout)


async def start_in_thread(*flags: str) -> EmbeddedServer:
    """EmbeddedServer(*flags) without blocking the event loop. Where the task is cancelled meanwhile, the
    server ends as soon as it has started: a thread cannot be interrupted, and nobody else knows of it.
    """
    lock, started, abandoned = threading.Lock(), list[EmbeddedServer](), threading.Event()

    def start() -> EmbeddedServer:
        server = EmbeddedServer(*flags)
        with lock:
            started.append(server)
            unwanted = abandoned.is_set()
        if unwanted:
            server.close()
        return server

    try:
        return await asyncio.to_thread(start)
    except asyncio.CancelledError:
        with lock:
            abandoned.set()
            ready = list(started)
        for server in ready:  # it was on its way here
            threading.Thread(target=server.close, name="sparsefw-server-end").start()
        raise
