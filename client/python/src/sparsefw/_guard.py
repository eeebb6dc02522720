"""Runs a program for as long as another process lives. A program of its own; imports nothing of sparsefw.

    python -I -S _guard.py PARENT-PID FOLDER PROGRAM [ARGUMENT ...]

It ends the program and removes FOLDER when its standard input is closed or PARENT-PID is gone. The pipe
tells at once; a child that the parent forked may hold its other end open, so the parent's number is looked
at too. PR_SET_PDEATHSIG of the parent would not do: the kernel sends it when the thread ends that started
the child. Here it is set against the guard's only thread, for the case that the guard itself is killed.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

GRACE = 10.0  # seconds from SIGTERM to SIGKILL
LOOK = 0.5  # seconds between looks at the parent
PR_SET_PDEATHSIG = 1


def main() -> int:
    parent, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    leave_cleaner(parent, folder)
    wake, alarm = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    asked: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Whoever ends the guard means the program.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))

    try:
        program = start(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    # The output is the program's alone: with it the parent's reader comes to an end.
    os.dup2(2, 1)
    left_alone = False
    while program.poll() is None and not asked and not left_alone:
        ready, _, _ = select.select([0, wake], [], [], LOOK)
        if wake in ready:
            os.read(wake, 4096)
        left_alone = os.getppid() != parent or (0 in ready and not os.read(0, 4096))
    end(program)
    # A parent that is there reads the log of a program that failed, and removes the folder itself.
    if left_alone:
        shutil.rmtree(folder, ignore_errors=True)
    return program.wait()


def leave_cleaner(parent: int, folder: str) -> None:
    """A process that removes the folder where this one is killed, too. Ray kills the children of a worker
    that ends: so it is nobody's child, in a session of its own.
    """
    try:
        ends = [os.pidfd_open(os.getpid()), os.pidfd_open(parent)]
    except OSError:  # the parent has ended, which this process sees, too; or the kernel is an old one
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        for end_of in ends:
            os.close(end_of)
        return
    if os.fork() == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # pipes of others
            os.dup2(nowhere, number)
        select.select(ends[:1], [], [])
        while os.path.exists(folder) and not select.select(ends[1:], [], [], LOOK)[0]:
            pass
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def start(command: "list[str]") -> "subprocess.Popen[bytes]":
    """The program, which the kernel kills if this process is killed."""
    libc, guard = ctypes.CDLL(None), os.getpid()

    def follow() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)

    return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=follow)


def end(program: "subprocess.Popen[bytes]") -> None:
    """Gently at first."""
    if program.poll() is not None:
        return
    program.terminate()
    try:
        program.wait(GRACE)
    except subprocess.TimeoutExpired:
        program.kill()


if __name__ == "__main__":
    sys.exit(main())
