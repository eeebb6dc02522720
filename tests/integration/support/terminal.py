"""A program on a pseudo-terminal, and what its screen shows."""
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios

from support.processes import clean_environment, finish


class Screen:
    """The lines of a terminal that knows '\\r', '\\n', clear-to-end-of-line and colours."""

    def __init__(self, text):
        self.lines, self.column, self.painted = [""], 0, []
        for part in re.findall(r"\033\[[0-9;]*[A-Za-z]|[\r\n]|[^\r\n\033]+", text):
            if part == "\r":
                self.painted.append(self.lines[-1])
                self.column = 0
            elif part == "\n":
                self.lines.append("")
                self.column = 0
            elif part == "\033[K":
                self.lines[-1] = self.lines[-1][:self.column]
            elif not part.startswith("\033"):
                line = self.lines[-1]
                self.lines[-1] = line[:self.column] + part + line[self.column + len(part):]
                self.column += len(part)


def run_on_terminal(arguments, columns=100, env=None, on_text=None):
    """Runs with standard error on a terminal; on_text(text so far, process) may act on it.

    Returns the finished process and the raw text of the terminal."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**clean_environment(), "TERM": "xterm", **(env or {})}
    process = subprocess.Popen([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=terminal,
                               text=True, env=environment)
    os.close(terminal)
    shown = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        shown += data
        if on_text:
            on_text(shown.decode(errors="replace"), process)
    os.close(main)
    return finish(process), shown.decode()


class InterruptAt:
    """Sends SIGINT once when `pattern` has been shown, and again when `then` has been."""

    def __init__(self, *patterns):
        self.patterns = list(patterns)

    def __call__(self, text, process):
        if self.patterns and re.search(self.patterns[0], text):
            self.patterns.pop(0)
            process.send_signal(signal.SIGINT)
